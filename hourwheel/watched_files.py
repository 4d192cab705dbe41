"""Files that are read again when they change while a program runs: settings, certificates, keys.

What is looked at is each file that was read. Files that change one after the other may not fit
together for a moment, and may never: then what they said before stays in use as a whole, `note` is
called once, and they are tried again at each look.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from hourwheel.errors import ConfigError

LOOK_S: Final = 2.0
"""How often it is looked whether files have changed."""

T = TypeVar("T")
_Seen = tuple[tuple[int, int, int], ...]


class ChangeReport(Protocol):
    """Called with what became of a change. May be called in another thread."""

    def used(self, paths: Sequence[str], *, is_new: bool) -> None:
        """Files have changed and are in use; `is_new`: they say something else than before."""

    def refused(
        self, paths: Sequence[str], why: str, bug: Exception | None, *, again: bool
    ) -> None:
        """They cannot be used; `bug`: by a mistake of ours; `again`: as at the last look."""


class WatchedFiles(Generic[T]):
    """What is made of some files. See the top of this file."""

    def __init__(
        self,
        make: Callable[[], tuple[T, Sequence[str]]],
        report: ChangeReport,
        paths: Sequence[str] = (),
    ) -> None:
        """Read them.

        Args:
            make: reads; gives what came of it, and the paths of all files that it has read. Raises
                ConfigError.
            report: of what becomes of changes.
            paths: of these files, where they are known before they are read.

        Raises:
            ConfigError: of `make`.
        """
        self._make, self._report = make, report
        seen = _stats(paths)
        self._complaint = ""
        self.value, self._paths = make()
        """What they say."""
        # Files seen for the first time may have changed meanwhile: they are read once more.
        self._seen: _Seen = seen if list(self._paths) == list(paths) else ()
        self.version = 1
        """Grows whenever `value` is another one."""

    @property
    def is_refused(self) -> bool:
        """The files cannot be used, and the former ones are in use."""
        return bool(self._complaint)

    def look(self) -> bool:
        """Read them again if they have changed; whether `value` is another one now."""
        seen = _stats(self._paths)
        if seen == self._seen and not self._complaint:
            return False
        try:
            value, paths = self._make()
        except ConfigError as error:
            self._refuse(seen, error.message, None)
            return False
        except Exception as error:  # noqa: BLE001 - what is in a file must not end the looking
            self._refuse(seen, repr(error), error)
            return False
        is_new = value != self.value
        is_reported = is_new or bool(self._complaint or self._seen)
        self._seen = seen if list(paths) == list(self._paths) else ()
        self._paths, self._complaint = paths, ""
        if is_new:
            self.value = value
            self.version += 1
        if is_reported:
            self._report.used(paths, is_new=is_new)
        return is_new

    def _refuse(self, seen: _Seen, why: str, bug: Exception | None) -> None:
        again = seen == self._seen and why == self._complaint
        self._seen, self._complaint = seen, why
        self._report.refused(self._paths, why, bug, again=again)

    async def watch(self, on_change: Callable[[T], None] = lambda _: None) -> None:
        """Look again and again, for ever."""
        while True:
            await asyncio.sleep(LOOK_S)
            if await asyncio.to_thread(self.look):  # reading authorities takes its time
                on_change(self.value)


class ReportedInLog:
    """Is a `ChangeReport`, in the words of a program whose configuration is in these files."""

    def __init__(self, log: logging.Logger) -> None:
        """`log`: of the program."""
        self._log = log
        self._is_refused = False

    def used(self, paths: Sequence[str], *, is_new: bool) -> None:
        """See ChangeReport."""
        del paths
        if self._is_refused:
            self._log.info("the configuration can be used again")
        if is_new:
            self._log.info("the configuration has changed, and is in use")
        self._is_refused = False

    def refused(
        self, paths: Sequence[str], why: str, bug: Exception | None, *, again: bool
    ) -> None:
        """See ChangeReport."""
        del paths
        self._is_refused = True
        if not again:
            said = "the new configuration is not used, the former one stays: %s"
            self._log.error(said, why, exc_info=bug)


def _stats(paths: Sequence[str]) -> _Seen:
    """Change when a file does; a file that is not there is a change, too."""
    return tuple(map(_stat, paths))


def _stat(path: str) -> tuple[int, int, int]:
    try:
        found = os.stat(path)  # noqa: PTH116 - follows links, as those of Kubernetes' mounts
    except OSError:
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_size, found.st_ino
