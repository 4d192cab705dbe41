"""Places are spelled one way, and what pyarrow reads is what the machine's own disk reads."""

from pathlib import Path

import pytest

from hourwheel import errors
from spark_jobs.runtime.paths import (
    arrow_disk,
    child,
    is_local,
    last_name,
    list_or_none,
    normalise,
    open_disk,
)
from storage.files.disk import Disk


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/a/b/", "/a/b"),
        (" /a/../b ", "/b"),
        ("file:///a/b%20c/", "/a/b c"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket/a?region=x", "s3://bucket/a?region=x"),
    ],
)
def test_place_when_written_in_several_ways_is_one(given: str, expected: str) -> None:
    assert normalise(given) == expected
    assert normalise(expected) == expected
    assert is_local(expected) == expected.startswith("/")


def test_place_when_relative_becomes_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert normalise("a") == str(tmp_path / "a")


def test_place_when_empty_is_refused() -> None:
    with pytest.raises(errors.ConfigError):
        normalise("  ")


@pytest.mark.parametrize("given", ["s3://[x", "/a\0b", "file://[::1/a"])
def test_place_when_it_is_neither_path_nor_uri_is_refused(given: str) -> None:
    with pytest.raises(errors.ConfigError):
        normalise(given)


def test_path_when_it_looks_like_the_host_of_a_uri_is_a_path() -> None:
    assert normalise("//[x/y") == "//[x/y"


def test_folder_when_in_another_keeps_the_query_of_the_place() -> None:
    assert child("/a", "b") == "/a/b"
    assert child("/", "b") == "/b"
    assert child("s3://x/a?region=y", "b") == "s3://x/a/b?region=y"
    assert last_name("s3://x/a/node-7?region=y") == "node-7"
    assert last_name("/a/b") == "b"


def test_scheme_when_nobody_knows_it_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match="carrier-pigeon"):
        open_disk("carrier-pigeon://x/y")


@pytest.fixture(params=["machine", "pyarrow"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"0123456789")
    (tmp_path / "empty").write_bytes(b"")
    is_machine = request.param == "machine"
    return open_disk(str(tmp_path)) if is_machine else arrow_disk(f"file://{tmp_path}")


def test_file_when_read_gives_its_bytes_and_no_more(disk: Disk) -> None:
    file = disk.open("folder/file")
    assert (file.size(), file.path) == (10, "folder/file")
    assert file.pread(4, 3) == b"3456"
    assert file.pread(100, 8) == b"89"
    assert file.pread(5, 10) == file.pread(5, 99) == b""
    assert list(file.pread_many([1, 2], [0, 4])) == [b"0", b"45"]
    file.will_need(0, 10)
    file.close()
    assert disk.open("empty").pread(8, 0) == b""


def test_folder_when_listed_gives_sorted_names_or_none(disk: Disk) -> None:
    assert disk.list("") == ["empty", "folder"]
    assert list_or_none(disk, "folder") == ["file"]
    assert list_or_none(disk, "absent") is None
    assert disk.exists("folder/file")
    assert disk.exists("folder")
    assert not disk.exists("absent")


def test_file_when_absent_is_not_found(disk: Disk) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open("folder/absent")
    with pytest.raises(FileNotFoundError):
        disk.list("absent")


def test_file_when_taken_for_a_folder_has_no_names(disk: Disk) -> None:
    assert not list_or_none(disk, "folder/file")
