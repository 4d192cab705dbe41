"""The gRPC API `hourwheel.v1` (proto/): services, admission, requests checked, answers made.

Nothing here decides what becomes of a message: a service checks, asks a port of
`node.contracts`, and puts the answer into protobuf. Errors become statuses in `calls`.
"""
