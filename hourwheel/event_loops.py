"""Which event loop a server's process runs on."""

import asyncio
import importlib
from collections.abc import Callable
from typing import Final

from hourwheel import errors

KINDS: Final = ("auto", "asyncio", "uvloop")


def loop_factory(kind: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loop; None for asyncio's own.

    Args:
        kind: one of `KINDS`; `auto` is uvloop where it is installed.

    Raises:
        ConfigError: uvloop is not installed.
    """
    if kind == "asyncio":
        return None
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        if kind == "auto":
            return None
        raise errors.ConfigError(
            f"node.event_loop = {kind!r}: it is not installed", key="node.event_loop", value=kind
        ) from None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
