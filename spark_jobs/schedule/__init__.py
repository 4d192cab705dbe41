"""Bulk scheduling: the rows of a DataFrame, each scheduled once however often the job is run."""
