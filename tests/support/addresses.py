"""Addresses on loopback that nobody has."""

import socket


def free_address() -> str:
    """host:port of loopback. It is fixed, so that others can be told before somebody listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"
