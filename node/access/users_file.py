"""Users of a file: one a line, name, colon, Argon2 hash of the secret."""

from collections.abc import Callable
from typing import Final

from hourwheel import errors
from node.access.tokens import is_name
from node.access.user_secrets import is_affordable
from replication.node_files import NodeFiles, read_file

_KEY: Final = "authentication.users_file"


class UsersFile:
    """The users; read again when the file changes."""

    def __init__(self, path: str, note: Callable[[bool], None] = lambda _: None) -> None:
        """Read them.

        Args:
            path: of the file.
            note: see `NodeFiles`.

        Raises:
            ConfigError: it cannot be read, or a line is wrong.
        """
        self.files = NodeFiles([path], lambda: _parse(path), note)

    def find_hash(self, name: str) -> str | None:
        """Of the user's secret; None: there is no such user."""
        return self.files.value.get(name)


def _parse(path: str) -> dict[str, str]:
    try:
        text = read_file(_KEY, path).decode()
    except UnicodeDecodeError:
        raise _refusal(path, "not UTF-8") from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, hashed = line.strip().partition(":")
        if not colon or not is_name(name) or name in found or not is_affordable(hashed):
            raise _refusal(
                path,
                f"line {number} is not name:hash, or its name stands there twice, or the hash asks "
                "for more than a node gives",
            )
        found[name] = hashed
    return found


def _refusal(path: str, why: str) -> errors.ConfigError:
    return errors.ConfigError(f"{_KEY} = {path!r}: {why}", key=_KEY, value=path)
