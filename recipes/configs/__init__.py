"""One file per experiment; its get_config() returns a filled-in Config."""
