"""Commit logs as tables: found, cut into ranges, read and verified; the Spark data source."""
