"""Chaos: a real cluster under a recorded load, faults, and a checker of what was promised."""

from hourwheel import grpc_lines

grpc_lines.keep_errors_only()  # its clients meet more nodes that stop than anybody's
