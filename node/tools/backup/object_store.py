"""Backups in an object store that speaks S3: `s3://bucket/prefix`.

Objects are whole or not there, and durable when the store has answered; the store checks what it
gets against a digest that is signed with the request. Pieces may be written by several commands at
once; a manifest is written on condition that there is none of its name.

Nothing here can lock, so commands leave *marks*: `adding/<token>`, `removing/<token>`. Each writes
its own first and looks for the other kind then: of two that meet, one at least sees the other, and
takes its mark back. A command renews its mark while it works, and gives up where it could not for
ten minutes, or where its mark is gone when it is about to write the manifest. A mark of which the
store says that it is fifteen minutes older than one's own is of a command that is dead, and counts
for nothing: no request of a command that gave up lasts for the time between. So a backup that was
killed hinders no backup, and removals for a quarter of an hour. Clocks of machines are not asked.
"""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Lock
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from hourwheel import errors
from hourwheel.clock import Clock

_ADDING: Final = "adding"
_REMOVING: Final = "removing"
_MARK_RENEWED_MS: Final = 60_000
_MARK_GIVEN_UP_MS: Final = 600_000
MARK_DEAD: Final = timedelta(minutes=15)
_WRITERS: Final = 4
_TRIES: Final = 5
_TRIED_FOR: Final = timedelta(minutes=1)
_STATUS: Final = re.compile(r"status code: (\d{3})")
_NO_ROOM: Final = re.compile(r"status code: 507|StorageFull|QuotaExceeded")
_CREDENTIALS: Final = re.compile(r"/latest/api/token|/latest/meta-data|/v2/credentials|AssumeRole")
"""What is asked of the machine, where the environment has no credentials."""
_SERVER_AT_FAULT: Final = 500
_SLOW_DOWN: Final = 429
_TEXT_MAX: Final = 300
_DUMP: Final = "\n\nDebug"
"""Begins the dump of an error's fields."""
_CODE: Final = re.compile("<Code>([A-Za-z]{1,60})</Code>")
_Mode: TypeAlias = Literal["create", "overwrite"]


class ObjectStore:
    """See the top of this file, and `BackupStore`. Credentials are the environment's.

    `keep` and `write` may be called in several threads.

    Raises, from all that asks the store:
        Unauthenticated, PermissionDenied: there are no credentials; they do not suffice.
        NotFound: there is no such bucket.
        DiskFull: the store says that it has no room.
        Unavailable: it does not answer, or fails, also after some tries.
        FailedPrecondition: it refuses, for another reason.
    """

    writer_count = _WRITERS

    def __init__(self, store: S3Store, where: str, clock: Clock, mark_dead: timedelta) -> None:
        """`where`: for messages. See `open`."""
        self._store, self._where, self._clock = store, where, clock
        self._mark_dead = mark_dead
        self._mark: str | None = None
        self._renewed_ms = 0.0
        self._renewing = Lock()

    @classmethod
    def open(cls, url: str, clock: Clock, mark_dead: timedelta = MARK_DEAD) -> "ObjectStore":
        """Of `s3://bucket/prefix`. Asks nothing yet.

        Args:
            url: see there.
            clock: for when a mark is renewed.
            mark_dead: a mark that is so much older than one's own is of a dead command.

        Raises:
            InvalidArgument: that is no such address.
            Unprotected: the store is reached without TLS, and that was not allowed.
        """
        parts = urlsplit(url)
        if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment or "@" in url:
            raise errors.InvalidArgument(f"{url} is not s3://BUCKET/PREFIX")
        allow_http = os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true"
        endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""
        if endpoint.startswith("http://") and not allow_http:
            raise errors.Unprotected(
                f"{endpoint} is reached in the clear: AWS_ALLOW_HTTP=true allows it"
            )
        try:
            store = S3Store(
                parts.netloc,
                prefix=parts.path.strip("/") or None,
                client_options={"timeout": _TRIED_FOR, "allow_http": allow_http},
                retry_config={"max_retries": _TRIES, "retry_timeout": _TRIED_FOR},
            )
        except BaseError as error:
            raise errors.InvalidArgument(f"{url}: {_text_of(error)}") from error
        return cls(store, url.rstrip("/"), clock, mark_dead)

    # -- marks ------------------------------------------------------------------------------------

    @contextmanager
    def adding(self) -> Iterator[None]:
        """See `BackupStore`."""
        with self._marked(_ADDING, _REMOVING):
            yield

    @contextmanager
    def removing(self) -> Iterator[None]:
        """See `BackupStore`."""
        with self._marked(_REMOVING, _ADDING):
            yield

    @contextmanager
    def _marked(self, kind: str, other: str) -> Iterator[None]:
        mark = self._mark = f"{kind}/{secrets.token_hex(8)}"
        self._write_mark()
        try:
            self._refuse_beside(other)
            yield
        finally:
            self._mark = None
            # One that stays counts as dead after a while; what was done is done all the same.
            with suppress(errors.HourwheelError):
                self.remove(mark)

    def _write_mark(self) -> None:
        if self._mark is not None:
            self._put(self._mark, b"", "overwrite")
            self._renewed_ms = self._clock.monotonic_ms()

    def _refuse_beside(self, other: str) -> None:
        with self._own_errors():
            now = obstore.head(self._store, str(self._mark))["last_modified"]
            found = obstore.list_with_delimiter(self._store, other)["objects"]
            for one in found:
                if now - one["last_modified"] < self._mark_dead:
                    raise errors.Unavailable(
                        f"{self._where}: a command that is {other} backups is at work there, or was"
                        f" killed minutes ago (its mark is {one['path']}): try again later",
                        mark=one["path"],
                    )
        for one in found:
            self.remove(one["path"])

    def _keep_mark(self) -> None:
        """Called by all that relies on the mark."""
        with self._renewing:
            since_ms = self._clock.monotonic_ms() - self._renewed_ms
            if self._mark is not None and since_ms >= _MARK_RENEWED_MS:
                self._renew_mark(since_ms)

    def _renew_mark(self, since_ms: float) -> None:
        """Also where it is said to be new: no clock runs while a machine is suspended."""
        if self._mark is None:
            return
        if since_ms > _MARK_GIVEN_UP_MS or self._find_size(self._mark) is None:
            raise errors.Unavailable(
                f"{self._where}: this command stood still for so long that others took it for"
                " dead: begin again"
            )
        self._write_mark()

    # -- objects ----------------------------------------------------------------------------------

    def keep(self, path: str, size_bytes: int) -> bool:
        """See `BackupStore`."""
        self._keep_mark()
        return self._find_size(path) == size_bytes

    def write(self, path: str, raw: bytes) -> None:
        """See `BackupStore`."""
        self._keep_mark()
        self._put(path, raw, "overwrite")

    def write_new(self, path: str, raw: bytes) -> None:
        """See `BackupStore`."""
        with self._renewing:
            self._renew_mark(self._clock.monotonic_ms() - self._renewed_ms)
        try:
            self._put(path, raw, "create")
        except errors.AlreadyExists:
            # By an earlier try of this very call, whose answer was lost; or else by somebody else.
            if self.read(path, len(raw)) != raw:
                raise

    def settle(self) -> None:
        """See `BackupStore`. What the store has answered is durable."""

    def read(self, path: str, most_bytes: int) -> bytes:
        """See `BackupStore`."""
        with self._own_errors():
            found = obstore.get(self._store, path)
            if found.meta["size"] > most_bytes:
                return bytes(obstore.get_range(self._store, path, start=0, length=most_bytes + 1))
            return bytes(found.bytes())

    def names(self, folder: str) -> list[str]:
        """See `BackupStore`."""
        with self._own_errors():
            found = obstore.list_with_delimiter(self._store, folder)
        paths = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        return sorted(one.rsplit("/", 1)[-1] for one in paths)

    def remove(self, path: str) -> int:
        """See `BackupStore`."""
        self._keep_mark()
        size_bytes = self._find_size(path)
        if size_bytes is None:
            return 0
        with self._own_errors(), suppress(FileNotFoundError):
            obstore.delete(self._store, path)
        return size_bytes

    def _find_size(self, path: str) -> int | None:
        try:
            with self._own_errors():
                return obstore.head(self._store, path)["size"]
        except FileNotFoundError:
            return None

    def _put(self, path: str, raw: bytes, mode: _Mode) -> None:
        try:
            with self._own_errors():
                obstore.put(self._store, path, raw, mode=mode, use_multipart=False)
        except FileNotFoundError as error:
            raise errors.NotFound(f"{self._where}: there is no such bucket") from error

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        """Turn the library's errors into ours; FileNotFoundError stays."""
        try:
            yield
        except BaseError as error:
            raise self._error_of(error) from error

    def _error_of(self, error: BaseError) -> errors.HourwheelError:
        said = str(error).partition(_DUMP)[0]
        text = f"{self._where}: {_text_of(error)}"
        if isinstance(error, AlreadyExistsError):
            return errors.AlreadyExists(text)
        if isinstance(error, PermissionDeniedError):
            return errors.PermissionDenied(f"these credentials do not suffice: {text}")
        if isinstance(error, UnauthenticatedError) or _CREDENTIALS.search(said):
            return errors.Unauthenticated(
                f"{self._where}: no credentials: give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
                " or the machine a role"
            )
        if "NoSuchBucket" in said:
            return errors.NotFound(f"{self._where}: there is no such bucket")
        return _by_status(said, text)


def _by_status(said: str, text: str) -> errors.HourwheelError:
    if _NO_ROOM.search(said):
        return errors.DiskFull(f"no room: {text}")
    found = _STATUS.search(said)
    status = None if found is None else int(found[1])
    if status is None or status >= _SERVER_AT_FAULT or status == _SLOW_DOWN:
        return errors.Unavailable(text)
    return errors.FailedPrecondition(text)


def _text_of(error: BaseError) -> str:
    """What it says in a line, with the store's own word for it."""
    said = str(error).partition(_DUMP)[0]
    code = _CODE.search(said)
    line = said.partition("\n")[0].partition("<?xml")[0][:_TEXT_MAX].rstrip(": ")
    return line if code is None else f"{line} ({code[1]})"
