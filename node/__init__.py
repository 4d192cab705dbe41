"""One node: the shard, its engine and the gRPC server around it. `python -m node` runs it."""

from hourwheel.transport import grpc_logging

grpc_logging.keep_errors_only()  # here, since all of this room comes after it, gRPC included
