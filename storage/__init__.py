"""Bytes on disk: the commit log and those of its views that have no idea of time."""
