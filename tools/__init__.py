"""Programs that accompany the library: each parses arguments, calls, prints."""
