"""Secrets, grants, and a grant that is given and taken however often that takes."""

from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from chaos import principals
from chaos.certificates import Authority
from chaos.history import History
from chaos.node_process import TREE
from chaos.principals import ADMIN, GuestGrant, Principals
from hourwheel import errors
from hourwheel.clock import SystemClock


class FakeAdmin:
    """Each call fails first: its answer is lost."""

    done: ClassVar[list[tuple[str, tuple[Any, ...]]]] = []

    def __init__(self, *_: object, **__: object) -> None:
        self._is_lost = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> None:
            self._is_lost = not self._is_lost
            if self._is_lost:
                raise errors.Timeout("nobody knows")
            if name == "revoke":
                raise errors.NotFound("it went with the call before")
            self.done.append((name, arguments))

        return call


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(principals, "LOOK_S", 0.0)
    monkeypatch.setattr(principals, "AsyncAdmin", FakeAdmin)
    FakeAdmin.done.clear()


async def test_principals_are_made_known_with_their_grants(tmp_path: Path) -> None:
    made = Principals.make(tmp_path, Authority(tmp_path), TREE)
    assert made.users_file.read_text().startswith(f"{ADMIN}:$argon2")
    assert made.options(ADMIN)["user"] == (ADMIN, made.secrets[ADMIN])
    assert made.sections("c", "k")["access"] == {"is_on": True, "administrators": ADMIN}
    await made.introduce(["a:1", "b:1"], 5.0)
    assert [name for name, _ in FakeAdmin.done] == [
        *("put_user", "put_user", "grant", "grant", "grant", "members", "members")
    ]


async def test_grant_is_changed_until_somebody_says_so() -> None:
    history = History()
    grant = GuestGrant(FakeAdmin(), "alpha", history, SystemClock())  # type: ignore[arg-type]
    await grant.give()
    await grant.take()
    assert [one.is_allowed for one in history.grant_changes] == [True, False]
    assert history.grant_changes[0].answered_ms <= history.grant_changes[1].requested_ms
