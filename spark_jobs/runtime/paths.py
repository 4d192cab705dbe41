"""Where logs lie: folders of this machine, or object stores and HDFS, behind one reading port.

    /var/lib/hourwheel          a folder of this machine, `storage.files.disk.RealDisk`, read only
    file:///var/lib/hourwheel   the same
    s3://bucket/copies/node-1   and gs://, abfs://, hdfs://: `pyarrow.fs.FileSystem.from_uri`

Both are a `storage.files.disk.Disk` of which only the reading half may be used, so that all that
storage knows of its own files (headers, small files, marks, epochs) is read by storage's own code.
A URI is a plain string: Spark carries it to where a partition is read, and the port is opened
there.

Credentials and endpoints of object stores come from the environment, as pyarrow documents it, or
from the query of the URI (`s3://bucket/path?region=eu-west-1&endpoint_override=...`).
"""

import os
from collections.abc import Sequence
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit, urlunsplit

from hourwheel import errors
from storage.files.disk import Disk, RealDisk

_LOCAL_SCHEMES: Final = ("", "file")


def normalise(uri: str) -> str:
    """One spelling of a place: an absolute path for this machine's folders, else the URI.

    Raises:
        ConfigError: it is empty, or nothing that could be a path or a URI.
    """
    text = uri.strip()
    if not text:
        raise errors.ConfigError("an empty path where logs should be")
    if "\0" in text:
        raise errors.ConfigError(f"no path has a zero byte: {text!r}")
    if text.startswith("/"):
        return os.path.abspath(text)  # noqa: PTH100
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise errors.ConfigError(f"{text}: {error}", uri=text) from None
    if parts.scheme in _LOCAL_SCHEMES:
        return os.path.abspath(unquote(parts.path) if parts.scheme else text)  # noqa: PTH100
    return urlunsplit(parts._replace(path=parts.path.rstrip("/")))


def is_local(uri: str) -> bool:
    """Whether a normalised place is a folder of this machine."""
    return uri.startswith("/")


def child(uri: str, name: str) -> str:
    """The place of a folder in another; both normalised."""
    if is_local(uri):
        return f"{uri.rstrip('/')}/{name}"
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}"))


def last_name(uri: str) -> str:
    """The last part of a place: what to call a node that does not say its name."""
    path = uri if is_local(uri) else urlsplit(uri).path
    return path.rstrip("/").rpartition("/")[2] or uri


def open_disk(uri: str) -> Disk:
    """The reading port of a normalised place; whether anything is there is seen when it is used.

    Raises:
        ConfigError: a URI that pyarrow does not know or cannot use.
    """
    if is_local(uri):
        return RealDisk(uri, read_only=True)
    return arrow_disk(uri)


def arrow_disk(uri: str) -> Disk:
    """As `open_disk`, by pyarrow whatever the scheme is.

    Raises:
        ConfigError: see `open_disk`.
    """
    try:
        from pyarrow import ArrowInvalid, fs  # noqa: PLC0415 - takes 0.2 s; only where needed
    except ImportError:
        raise errors.ConfigError(f"{uri}: pyarrow reads it, which is not installed") from None
    try:
        system, root = fs.FileSystem.from_uri(uri)
    except (ArrowInvalid, OSError) as error:
        raise errors.ConfigError(f"{uri}: {error}", uri=uri) from None
    # It has the reading half of the port: storage's readers ask for no more.
    return cast("Disk", ArrowDisk(system, root))


def list_or_none(disk: Disk, path: str) -> list[str] | None:
    """Names in a folder; None where there is no such folder, or it is a file."""
    try:
        return disk.list(path)
    except (FileNotFoundError, errors.DiskFailed):
        return None


class ArrowFile:
    """A file that pyarrow reads: the reading half of `storage.files.disk.File`."""

    def __init__(self, file: Any, path: str) -> None:
        """Own an open `pyarrow.NativeFile`."""
        self._file = file
        self._path = path

    @property
    def path(self) -> str:
        """See `File.path`."""
        return self._path

    def pread(self, length: int, position: int) -> bytes:
        """See `File.pread`."""
        if position >= self.size():
            return b""
        try:
            found: bytes = self._file.read_at(length, position)
        except OSError as error:
            raise errors.DiskFailed(f"{self._path}: {error}", file=self._path) from error
        return found

    def pread_many(self, lengths: Sequence[int], positions: Sequence[int]) -> list[bytes]:
        """See `File.pread_many`."""
        return [self.pread(*place) for place in zip(lengths, positions, strict=True)]

    def size(self) -> int:
        """See `File.size`: as it was when the file was opened, in object stores."""
        return int(self._file.size())

    def will_need(self, position: int, length: int) -> None:
        """See `File.will_need`: no hint is given."""

    def close(self) -> None:
        """See `File.close`."""
        self._file.close()


class ArrowDisk:
    """A folder of a file system that pyarrow knows: the reading half of a `Disk`."""

    def __init__(self, system: Any, root: str) -> None:
        """`system`: a `pyarrow.fs.FileSystem`; `root`: a path in it."""
        self._system = system
        self._root = root.rstrip("/")

    def _real(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _info(self, path: str) -> Any:
        try:
            return self._system.get_file_info(self._real(path))
        except OSError as error:
            raise errors.DiskFailed(f"{path}: {error}", file=path) from error

    def open(self, path: str) -> "ArrowFile":
        """See `Disk.open`."""
        try:
            return ArrowFile(self._system.open_input_file(self._real(path)), path)
        except FileNotFoundError:
            raise
        except OSError as error:
            if self.exists(path):
                raise errors.DiskFailed(f"{path}: {error}", file=path) from error
            raise FileNotFoundError(path) from error

    def exists(self, path: str) -> bool:
        """See `Disk.exists`."""
        return bool(self._info(path).type)  # FileType.NotFound is 0

    def list(self, path: str) -> list[str]:
        """See `Disk.list`."""
        from pyarrow import fs  # noqa: PLC0415 - see arrow_disk

        try:
            found = self._system.get_file_info(fs.FileSelector(self._real(path)))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise errors.DiskFailed(f"{path}: {error}", file=path) from error
        return sorted(info.base_name for info in found)
