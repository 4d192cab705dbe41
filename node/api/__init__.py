"""The gRPC API `hourwheel.v1` (proto/): servicers, admission, errors on the wire."""
