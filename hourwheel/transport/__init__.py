"""The way to the nodes: connections, calls with deadlines, failover. Nothing of messages.

`grpc_status` is what nodes make of errors, `grpc_errors` what clients read out of that again.
"""
