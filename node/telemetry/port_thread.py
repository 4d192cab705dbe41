"""A listening socket that is served by an event loop on a thread of its own.

For ports that strangers reach and that must not take turns of the node's loop: Prometheus'
and the console's.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Final, TypeAlias

from hourwheel import errors
from node.config.checks import split_address

_BACKLOG: Final = 128

Serve: TypeAlias = Callable[[socket.socket, asyncio.Event], Coroutine[object, None, None]]
"""Serves a listening socket until the event is set, and closes it."""


class PortThread:
    """`start` listens, `stop` ends it."""

    def __init__(self, key: str, listen: str, name: str) -> None:
        """Nothing listens yet.

        Args:
            key: of the configuration, for errors.
            listen: host:port; port 0 for any free.
            name: of the thread.
        """
        self._key, self._listen, self._name = key, listen, name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_over = asyncio.Event()

    def start(self, serve: Serve) -> str:
        """Listen; the address, host:port.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        host, port = split_address(self._key, self._listen)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise errors.ConfigError(
                f"{self._key} = {self._listen!r}: cannot listen there: {error.strerror}",
                key=self._key,
                value=self._listen,
            ) from error
        self._is_over = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run,
            args=(self._loop, serve(listening, self._is_over)),
            name=self._name,
            daemon=True,
        )
        self._thread.start()
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{listening.getsockname()[1]}"

    def _run(self, loop: asyncio.AbstractEventLoop, serving: Coroutine[object, None, None]) -> None:
        try:
            loop.run_until_complete(serving)
        finally:
            loop.close()

    def stop(self) -> None:
        """Stop listening and cut everybody off; harmless where it does not listen."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._is_over.set)
            self._thread.join()
            self._loop = self._thread = None
