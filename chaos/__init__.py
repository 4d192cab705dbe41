"""Chaos: a real cluster under a recorded load, faults, and a checker of what was promised."""

from hourwheel.transport import grpc_logging

grpc_logging.keep_errors_only()  # its clients meet more nodes that stop than anybody's
