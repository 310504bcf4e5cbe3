"""One file for each experiment; get_config() returns a filled-in Config."""
