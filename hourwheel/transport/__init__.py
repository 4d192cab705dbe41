"""The way to the nodes: connections, calls with deadlines, failover. Nothing of messages."""
