"""What files say of how the nodes are known, and who calls."""

from pathlib import Path

import pytest

from hourwheel.errors import InvalidArgument
from hourwheel.transport.access import PLAIN, Access, Tls
from hourwheel.transport.access_files import AccessFiles


def file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_no_files_are_nobody_in_the_clear() -> None:
    assert AccessFiles().read() == PLAIN


def test_files_say_who_calls(tmp_path: Path) -> None:
    login = file(tmp_path, "login", "alice:of: alice \nmore")
    token = file(tmp_path, "token", " a.b.c\n")
    assert AccessFiles(tls_ca="system", login_file=login).read() == Access(
        Tls(), user=("alice", "of: alice")
    )
    assert AccessFiles(tls_ca="ca.pem", token_file=token).read() == Access(
        Tls("ca.pem"), token="a.b.c"
    )


def test_what_does_not_go_together_or_cannot_be_read_is_refused(tmp_path: Path) -> None:
    login = file(tmp_path, "login", "alice:of alice")
    for wrong in (
        AccessFiles(login_file=file(tmp_path, "nobody", "alice")),
        AccessFiles(login_file=str(tmp_path / "missing")),
        AccessFiles(token_file=str(tmp_path)),
        AccessFiles(token_file=login, login_file=login),
        AccessFiles(tls_cert=login),
    ):
        with pytest.raises(InvalidArgument) as refused:
            wrong.read()
        assert "of alice" not in refused.value.message
