"""Clients of a workload that have rules of their own."""
