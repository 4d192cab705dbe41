"""What Prometheus reads: one `table` of families, read when a scrape comes, served by `http`."""
