"""Small files that a job writes: to a folder of this machine, or wherever pyarrow can write.

A file is there whole or not at all: a local one is renamed into its place, and an object store
shows an object when it is complete. Names are those of `spark_jobs.runtime.paths`.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import fs

from hourwheel import errors
from spark_jobs.runtime import paths


def open_folder(uri: str) -> tuple[Any, str]:
    """(`pyarrow.fs.FileSystem`, path in it) of a normalised place.

    Raises:
        ConfigError: a URI that pyarrow does not know or cannot use.
    """
    if paths.is_local(uri):
        return fs.LocalFileSystem(), uri
    try:
        system, path = fs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, OSError) as error:
        raise errors.ConfigError(f"{uri}: {error}", uri=uri) from None
    return system, path.rstrip("/")


def for_spark(uri: str) -> str:
    """The place as Spark takes it: a plain path would be one of the default file system."""
    return f"file://{uri}" if paths.is_local(uri) else uri


def make_folder(uri: str) -> None:
    """Make a folder with those above it; object stores have none, and need none."""
    system, path = open_folder(uri)
    system.create_dir(path, recursive=True)


def write(uri: str, raw: bytes) -> None:
    """Write a file, or put another content into it.

    Raises:
        ConfigError: see `open_folder`.
        OSError: it cannot be written.
    """
    make_folder(parent(uri))
    if paths.is_local(uri):
        unique = f"{uri}.{secrets.token_hex(8)}.part"
        try:
            _write_local(unique, raw)
            os.replace(unique, uri)  # noqa: PTH105 - URIs are plain strings here
        except BaseException:
            _remove_part(unique)
            raise
        return
    system, path = open_folder(uri)
    with system.open_output_stream(path) as stream:
        stream.write(raw)


@contextlib.contextmanager
def opened(uri: str) -> Iterator[Any]:
    """A stream to write a file with; it is there when the block ends well. Raises as `write`."""
    make_folder(parent(uri))
    is_local = paths.is_local(uri)
    system, path = open_folder(uri)
    unique = f"{path}.{secrets.token_hex(8)}.part" if is_local else path
    try:
        with system.open_output_stream(unique) as stream:
            yield stream
        if is_local:
            os.replace(unique, uri)  # noqa: PTH105 - see write
    except BaseException:
        with contextlib.suppress(OSError):
            system.delete_file(unique)
        raise


def create(uri: str, raw: bytes) -> bool:
    """Write a file unless there is one; whether it was written.

    On this machine's disks one of two who try at the same moment wins. pyarrow offers no such
    promise for object stores: there it is asked first, and then written.
    """
    make_folder(parent(uri))
    if not paths.is_local(uri):
        if read(uri) is not None:
            return False
        write(uri, raw)
        return True
    unique = f"{uri}.{secrets.token_hex(8)}.part"
    try:
        _write_local(unique, raw)
        os.link(unique, uri)
    except FileExistsError:
        return False
    finally:
        _remove_part(unique)
    return True


def read(uri: str) -> bytes | None:
    """The content of a file; None: there is none.

    Raises:
        ConfigError: see `open_folder`.
        OSError: it cannot be read.
    """
    system, path = open_folder(uri)
    try:
        with system.open_input_stream(path) as stream:
            raw: bytes = stream.read()
    except FileNotFoundError:
        return None
    return raw


def read_json(uri: str) -> Any:
    """The content of a JSON file; None: there is none.

    Raises:
        CorruptFile: it is no JSON.
    """
    raw = read(uri)
    if raw is None:
        return None
    try:
        return json.loads(raw)
    except ValueError:
        raise errors.CorruptFile(f"{uri}: no JSON", file=uri) from None


def write_json(uri: str, content: Any) -> None:
    """As `write`, of JSON."""
    write(uri, json_bytes(content))


def json_bytes(content: Any) -> bytes:
    """The JSON of a value, one line, names in order."""
    return f"{json.dumps(content, sort_keys=True)}\n".encode()


def names(uri: str) -> list[str]:
    """Names of the files in a folder, sorted; of none where there is no such folder."""
    return _list(uri, fs.FileType.File)


def folders(uri: str) -> list[str]:
    """Names of the folders in a folder, sorted; of none where there is no such folder."""
    return _list(uri, fs.FileType.Directory)


def _list(uri: str, kind: Any) -> list[str]:
    system, path = open_folder(uri)
    try:
        found = system.get_file_info(fs.FileSelector(path))
    except FileNotFoundError:
        return []
    return sorted(info.base_name for info in found if info.type == kind)


def remove(uri: str) -> None:
    """Remove a file, if it is there."""
    system, path = open_folder(uri)
    with contextlib.suppress(FileNotFoundError):
        system.delete_file(path)


def remove_folder(uri: str) -> None:
    """Remove a folder and all in it, if it is there."""
    system, path = open_folder(uri)
    with contextlib.suppress(FileNotFoundError):
        system.delete_dir(path)


def parent(uri: str) -> str:
    """The place that another one lies in."""
    return uri.rstrip("/").rpartition("/")[0] or "/"


def _remove_part(path: str) -> None:
    """What is left of a file that could not be written, as on a disk that is full."""
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108


def _write_local(path: str, raw: bytes) -> None:
    with open(path, "wb") as file:  # noqa: PTH123 - see write
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
