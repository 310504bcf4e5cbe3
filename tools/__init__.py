"""Programs beside the library: each parses, calls and prints."""
