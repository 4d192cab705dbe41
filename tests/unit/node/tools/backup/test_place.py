"""Addresses of backups, as they are written."""

import sys
from pathlib import Path

import pytest

from hourwheel import errors
from node.tools.backup.place import open_place, open_to_write


def test_a_folder_has_two_spellings(tmp_path: Path) -> None:
    folder = tmp_path / "with a space"
    with open_to_write(str(folder), make=True).adding():
        open_to_write(str(folder)).write("objects/ab/x", b"1")
    for text in (str(folder), f"file://{folder}".replace(" ", "%20"), f"file://localhost{folder}"):
        assert open_place(text).names("objects") == ["ab"]


@pytest.mark.parametrize("text", ["file://host/folder", "file://", "file:///a?b", "ftp://a/b"])
def test_other_addresses_are_refused(text: str) -> None:
    for opening in (open_place, open_to_write):
        with pytest.raises(errors.InvalidArgument):
            opening(text)


def test_a_folder_is_made_only_to_add_to_it(tmp_path: Path) -> None:
    for opening in (open_place, open_to_write):
        with pytest.raises(errors.NotFound, match="no folder"):
            opening(str(tmp_path / "missing"))


def test_who_writes_to_a_folder_is_alone(tmp_path: Path) -> None:
    with (
        open_to_write(str(tmp_path)).adding(),
        pytest.raises(errors.DirectoryLocked),
        open_to_write(str(tmp_path)).removing(),
    ):
        pass
    with open_to_write(str(tmp_path)).removing():
        pass


def test_without_the_package_it_is_said_which_one_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "node.tools.backup.object_store", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(errors.ConfigError, match=r"hourwheel\[s3\]"):
        open_place("s3://bucket/prefix")
