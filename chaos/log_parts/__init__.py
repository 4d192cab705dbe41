"""Parts of the naive reading of a log."""
