"""Spark: the commit logs as tables, and the audit that proves what was delivered from them."""
