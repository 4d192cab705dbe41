"""Logs as a lake of Parquet files (`hourwheel export`) and what falls due when (`forecast`)."""
