"""`hourwheel inspect`: what lies in a data directory, shown and verified, read-only."""
