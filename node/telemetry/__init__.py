"""Logs as events with fields, and the plain counters that a node writes and metrics read.

`failure` takes the reason why the process has to end.
"""
