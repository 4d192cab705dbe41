"""The commands on Spark: their options, what they print, their exit codes."""
