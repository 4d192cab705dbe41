from pathlib import Path

import argon2
import pytest

from hourwheel import errors
from node.access.users_file import UsersFile
from node.telemetry.stats import ApiStats

HASH = argon2.PasswordHasher().hash("secret")


def test_users(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"# people\nalice:{HASH}\n\nbob smith:{HASH}\n")
    users = UsersFile(str(file))
    assert users.find_hash("alice") == users.find_hash("bob smith") == HASH
    assert users.find_hash("# people") is None
    file.write_text(f"carol:{HASH}\n")
    users.files.look()
    assert users.find_hash("alice") is None
    assert users.find_hash("carol") == HASH


def test_file_that_is_refused_is_noted_until_it_can_be_used(tmp_path: Path) -> None:
    stats, file = ApiStats(), tmp_path / "users"
    file.write_text(f"alice:{HASH}\n")
    users = UsersFile(str(file), stats.login_file("users"))
    assert stats.login_files_refused == {"users": False}
    file.write_text("nonsense\n")
    users.files.look()
    assert stats.login_files_refused == {"users": True}
    assert users.find_hash("alice") == HASH
    file.write_text(f"carol:{HASH}\n")
    users.files.look()
    assert stats.login_files_refused == {"users": False}


@pytest.mark.parametrize(
    "text",
    [
        *("alice", "alice:", ":HASH", "alice:secret", "a:HASH\na:HASH\n", "a\x07b:HASH"),
        "a:" + HASH.replace("m=65536", "m=4194304"),
    ],
)
def test_lines_that_are_wrong(tmp_path: Path, text: str) -> None:
    file = tmp_path / "users"
    file.write_text(text.replace("HASH", HASH))
    with pytest.raises(errors.ConfigError) as caught:
        UsersFile(str(file))
    assert "line" in caught.value.message
    assert HASH not in caught.value.message


def test_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(errors.ConfigError):
        UsersFile(str(file))
