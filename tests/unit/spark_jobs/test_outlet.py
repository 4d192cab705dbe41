from pathlib import Path

import pytest

from hourwheel import errors
from spark_jobs import outlet


def test_create_writes_once(tmp_path: Path) -> None:
    uri = str(tmp_path / "folder" / "mark.json")
    assert outlet.create(uri, b"first")
    assert not outlet.create(uri, b"second")
    assert outlet.read(uri) == b"first"
    assert outlet.names(str(tmp_path / "folder")) == ["mark.json"]


def test_write_replaces_whole_files(tmp_path: Path) -> None:
    uri = str(tmp_path / "summary.json")
    outlet.write_json(uri, {"b": 1, "a": 2})
    assert outlet.read(uri) == b'{"a": 2, "b": 1}\n'
    outlet.write_json(uri, [])
    assert outlet.read_json(uri) == []
    assert outlet.names(str(tmp_path)) == ["summary.json"]


def test_a_stream_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    uri = str(tmp_path / "rows.parquet")
    outlet.write(uri, b"old")
    with pytest.raises(TypeError), outlet.opened(uri) as stream:
        stream.write(object())
    assert outlet.read(uri) == b"old"
    assert outlet.names(str(tmp_path)) == ["rows.parquet"]


def test_a_file_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: str, raw: bytes) -> None:
        Path(path).write_bytes(raw[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(outlet, "_write_local", full)
    for write in (outlet.write, outlet.create):
        with pytest.raises(OSError, match="No space"):
            write(str(tmp_path / "mark.json"), b"raw")
    assert outlet.names(str(tmp_path)) == []


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert outlet.read(str(tmp_path / "none")) is None
    assert outlet.read_json(str(tmp_path / "none")) is None
    assert outlet.names(str(tmp_path / "none")) == []
    outlet.remove(str(tmp_path / "none"))
    outlet.remove_folder(str(tmp_path / "none"))


def test_any_file_system_of_pyarrow_will_do(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/deep/er/x.json"  # not normalised: so it goes through pyarrow
    assert outlet.create(uri, b"{}")
    assert not outlet.create(uri, b"[]")
    with outlet.opened(f"file://{tmp_path}/y") as stream:
        stream.write(b"y")
    assert outlet.read_json(uri) == {}
    assert outlet.read(f"file://{tmp_path}/y") == b"y"
    outlet.remove(uri)
    assert outlet.read(uri) is None


def test_bad_places_and_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="nosuch://"):
        outlet.read("nosuch://x/y")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(errors.CorruptFile, match="bad"):
        outlet.read_json(str(tmp_path / "bad.json"))


def test_places_as_spark_takes_them() -> None:
    assert outlet.for_spark("/a/b") == "file:///a/b"
    assert outlet.for_spark("s3a://a/b") == "s3a://a/b"
