"""One node: the shard, its engine and the gRPC server around it. `python -m node` runs it."""
