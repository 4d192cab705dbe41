"""Configuration that is read again when it changes while the program runs.

What is looked at is the file itself and what it names: certificates, keys, secrets. Where the new
ones cannot be used, or do not fit together (yet), the former stay in use as a whole; the log says
so once, a metric for as long as it lasts, and they are tried again at each look.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from hourwheel.errors import ConfigError

LOOK_S: Final = 2.0
"""How often it is looked whether files have changed."""

T = TypeVar("T")
_Seen = tuple[tuple[int, int, int], ...]


class WatchedFiles(Generic[T]):
    """What is made of some files. Values that say the same are equal."""

    def __init__(self, make: Callable[[], tuple[T, Sequence[str]]], log: logging.Logger) -> None:
        """Read them.

        Args:
            make: reads; gives what came of it, and the paths of all files that it has read. Raises
                ConfigError.
            log: of the program.

        Raises:
            ConfigError: of `make`.
        """
        self._make, self._log = make, log
        self._seen: _Seen = ()  # the first look reads once more: they may change meanwhile
        self._complaint = ""
        self.value, self._paths = make()

    @property
    def is_refused(self) -> bool:
        """The files cannot be used, and the former ones are in use."""
        return bool(self._complaint)

    def look(self) -> bool:
        """Read them again if they have changed; whether `value` is another one now."""
        seen = tuple(_stat(path) for path in self._paths)
        if seen == self._seen and not self._complaint:
            return False
        try:
            value, paths = self._make()
        except ConfigError as error:
            self._refuse(seen, error.message)
            return False
        if self._complaint:
            self._log.info("the configuration can be used again")
        self._paths, self._complaint = paths, ""
        # Files of another list are seen for the first time, and so read once more.
        self._seen = seen if len(paths) == len(seen) else ()
        is_new = value != self.value
        self.value = value
        return is_new

    def _refuse(self, seen: _Seen, why: str) -> None:
        if seen != self._seen or why != self._complaint:
            self._log.error("the new configuration is not used, the former one stays: %s", why)
        self._seen, self._complaint = seen, why

    async def watch(self, on_change: Callable[[T], None]) -> None:
        """Look again and again, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            if await asyncio.to_thread(self.look):  # reading authorities takes its time
                self._log.info("the configuration has changed, and is in use")
                on_change(self.value)


def _stat(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)  # noqa: PTH116 - follows links, as those of Kubernetes' mounts
    except OSError:
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_size, found.st_ino
