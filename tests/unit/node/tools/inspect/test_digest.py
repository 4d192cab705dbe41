import json
from pathlib import Path

import pytest

from node.tools.inspect import command
from node.tools.inspect.digest import digests_of
from tests.support.inspected import SHARD, made_image


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for path, content in made_image().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    return tmp_path


def content_of(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_I5_digests_are_equal_and_nothing_is_changed(directory: Path) -> None:  # noqa: N802
    before = content_of(directory)
    found = digests_of(directory)
    assert found.restored == found.rebuilt
    assert found.applied_offset > 0
    assert content_of(directory) == before


def test_views_end_at_an_offset_when_one_is_given(directory: Path) -> None:
    (directory / SHARD / "checkpoint").unlink()
    whole = digests_of(directory)
    earlier = digests_of(directory, until=whole.applied_offset - 1)
    assert earlier.applied_offset < whole.applied_offset
    assert earlier.restored == earlier.rebuilt != whole.restored
    assert digests_of(directory, until=whole.applied_offset) == whole


def test_digests_are_printed_when_they_are_asked_for(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--digest", "--json", str(directory)]) == command.EXIT_OK
    (told,) = json.loads(capsys.readouterr().out)
    assert told["good"]
    assert told["restored"] == digests_of(directory).restored
    assert command.main(["--digest", str(directory)]) == command.EXIT_OK
    assert f"rebuilt: {told['rebuilt']}\n" in capsys.readouterr().out


def test_reason_is_told_when_a_directory_cannot_be_opened(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "node.meta").write_bytes(b"x" * 200)
    assert command.main(["--digest", "--json", str(directory)]) == command.EXIT_DAMAGE
    (told,) = json.loads(capsys.readouterr().out)
    assert not told["good"]
    assert "node.meta" in told["error"]
