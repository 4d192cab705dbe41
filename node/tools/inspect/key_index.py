"""The key index as an inspection shows and verifies it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from hourwheel.internal.v1.state_pb2 import Checkpoint
from node.tools.inspect.files import ShardFiles
from node.tools.inspect.report import READ_ERRORS, Report, Row
from storage.files.file_header import FileType
from storage.views.key_run import NAME_END, KeyRun, file_name

KEYS: Final = "keys"


def show_keys(files: ShardFiles, manifest: Checkpoint | None, report: Report) -> None:
    """One row a run."""

    def rows() -> Iterator[Row]:
        for name in files.list(KEYS, NAME_END):
            path = files.path(KEYS, name)
            yield {**_key_run(files, path), "in_manifest": _is_named(manifest, name), "file": path}

    report.add("key index", files.path(KEYS), rows())


def _is_named(manifest: Checkpoint | None, name: str) -> str | None:
    if manifest is None:
        return None
    return "yes" if name in map(file_name, manifest.key_run_ids) else "no"


@contextmanager
def _opened(files: ShardFiles, path: str) -> Iterator[KeyRun]:
    file, header = files.open_checked(path, FileType.KEY_RUN)
    file.close()
    with closing(KeyRun(files.disk, path, header.identity)) as run:
        yield run


def _key_run(files: ShardFiles, path: str) -> Row:
    with _opened(files, path) as run:
        return run.footer._asdict()


def show_key_run(files: ShardFiles, path: str, report: Report) -> None:
    """Its footer."""
    report.add("run of keys", path, [_key_run(files, path)])


def verify_key_run(files: ShardFiles, path: str) -> None:
    """Every block. Raises `CorruptFile`."""
    with _opened(files, path) as run:
        for _ in run.check():
            pass


def verify_keys(files: ShardFiles, manifest: Checkpoint, report: Report) -> None:
    """Every block of the runs that the manifest names."""
    for run_id in manifest.key_run_ids:
        path = files.path(KEYS, file_name(run_id))
        try:
            verify_key_run(files, path)
        except READ_ERRORS as error:
            report.caught(error, path)
