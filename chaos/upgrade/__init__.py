"""Rolling restarts from an older revision to this one, under load: `make upgrade`."""
