"""What an audit compares, one subject a module. They take arrays and give findings; no Spark."""
