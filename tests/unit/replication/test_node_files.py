"""Files that change: what is wrong with one ends neither what was read nor the looking."""

import logging
from pathlib import Path

import pytest

from hourwheel import errors
from replication.node_files import NodeFiles


def test_files_are_looked_at_on_after_an_unexpected_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger="replication.node_files")
    path = tmp_path / "file"
    path.write_text("one")

    def make() -> str:
        text = path.read_text()
        if text == "odd":
            raise ZeroDivisionError
        if text == "wrong":
            raise errors.ConfigError("wrong", key="file", value="")
        return text

    files = NodeFiles([str(path)], make)
    for text in ("odd", "wrong"):
        path.write_text(text)
        for _ in range(3):
            files.look()
        assert (files.value, files.version) == ("one", 1)
    path.write_text("another")
    files.look()
    assert (files.value, files.version) == ("another", 2)
    told = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.message for record in told] == ["access_files_refused"] * 2
    assert told[0].exc_info is not None
    assert isinstance(told[0].exc_info[1], ZeroDivisionError)
