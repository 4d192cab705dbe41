from pathlib import Path

import pytest

from hourwheel import errors
from spark_jobs.runtime import output_files


def test_create_writes_once(tmp_path: Path) -> None:
    uri = str(tmp_path / "folder" / "mark.json")
    assert output_files.create(uri, b"first")
    assert not output_files.create(uri, b"second")
    assert output_files.read(uri) == b"first"
    assert output_files.names(str(tmp_path / "folder")) == ["mark.json"]


def test_write_replaces_whole_files(tmp_path: Path) -> None:
    uri = str(tmp_path / "summary.json")
    output_files.write_json(uri, {"b": 1, "a": 2})
    assert output_files.read(uri) == b'{"a": 2, "b": 1}\n'
    output_files.write_json(uri, [])
    assert output_files.read_json(uri) == []
    assert output_files.names(str(tmp_path)) == ["summary.json"]


def test_a_stream_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    uri = str(tmp_path / "rows.parquet")
    output_files.write(uri, b"old")
    with pytest.raises(TypeError), output_files.opened(uri) as stream:
        stream.write(object())
    assert output_files.read(uri) == b"old"
    assert output_files.names(str(tmp_path)) == ["rows.parquet"]


def test_a_file_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: str, raw: bytes) -> None:
        Path(path).write_bytes(raw[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output_files, "_write_local", full)
    for write in (output_files.write, output_files.create):
        with pytest.raises(OSError, match="No space"):
            write(str(tmp_path / "mark.json"), b"raw")
    assert output_files.names(str(tmp_path)) == []


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert output_files.read(str(tmp_path / "none")) is None
    assert output_files.read_json(str(tmp_path / "none")) is None
    assert output_files.names(str(tmp_path / "none")) == []
    output_files.remove(str(tmp_path / "none"))
    output_files.remove_folder(str(tmp_path / "none"))


def test_any_file_system_of_pyarrow_will_do(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/deep/er/x.json"  # not normalised: so it goes through pyarrow
    assert output_files.create(uri, b"{}")
    assert not output_files.create(uri, b"[]")
    with output_files.opened(f"file://{tmp_path}/y") as stream:
        stream.write(b"y")
    assert output_files.read_json(uri) == {}
    assert output_files.read(f"file://{tmp_path}/y") == b"y"
    output_files.remove(uri)
    assert output_files.read(uri) is None


def test_bad_places_and_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="nosuch://"):
        output_files.read("nosuch://x/y")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(errors.CorruptFile, match="bad"):
        output_files.read_json(str(tmp_path / "bad.json"))


def test_places_as_spark_takes_them() -> None:
    assert output_files.for_spark("/a/b") == "file:///a/b"
    assert output_files.for_spark("s3a://a/b") == "s3a://a/b"
