import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from hourwheel.cli import permissions
from tests.unit.hourwheel.cli.conftest import Cli


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> AsyncMock:
    """In place of the cluster's administration: the fake node has none."""
    answers = {"put_user": 7, "grant": 3, "users": [], "grants": []}
    asked = AsyncMock(**{f"{name}.return_value": value for name, value in answers.items()})

    def run(_output: Any, _server: str, command: Callable[[Any], Awaitable[None]]) -> None:
        asyncio.run(command(asked))  # type: ignore[arg-type]

    monkeypatch.setattr(permissions, "run_with_admin", run)
    return asked


def test_users_are_made_listed_and_deleted(cli: Cli, admin: AsyncMock, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("open sesame\nsecond line\n")
    assert cli("access", "put-user", "shop", "--secret-file", str(secret)).exit_code == 0
    admin.put_user.assert_awaited_with("shop", "open sesame")
    done = cli("access", "put-user", "shop", stdin="hush\nhush\n")
    assert (done.exit_code, "hush" in done.stdout) == (0, False)
    admin.put_user.assert_awaited_with("shop", "hush")
    missing = cli("access", "put-user", "shop", "--secret-file", str(tmp_path / "none"))
    assert missing.exit_code != 0
    assert cli("access", "users").exit_code == 0
    assert cli("access", "delete-user", "shop").exit_code == 0
    admin.delete_user.assert_awaited_with("shop")


@pytest.mark.parametrize(
    ("options", "resource"),
    [
        (("--topic", "orders-*"), ("topic", "orders-*")),
        (("--group", "mail"), ("group", "mail")),
        (("--cluster",), ("cluster", "")),
    ],
)
def test_grants_are_given_and_revoked(
    cli: Cli, admin: AsyncMock, options: tuple[str, ...], resource: tuple[str, str]
) -> None:
    assert cli("access", "grant", "shop", "publish, cancel", *options).exit_code == 0
    admin.grant.assert_awaited_with("shop", ["publish", "cancel"], *resource)
    assert cli("access", "revoke", "shop", *options).exit_code == 0
    admin.revoke.assert_awaited_with("shop", *resource)
    assert cli("access", "grants").exit_code == 0


@pytest.mark.parametrize(
    "options", [(), ("--topic", "a", "--group", "b"), ("--topic", "a", "--cluster")]
)
def test_grant_when_it_is_not_on_one_thing(
    cli: Cli, admin: AsyncMock, options: tuple[str, ...]
) -> None:
    assert cli("access", "grant", "shop", "publish", *options).exit_code != 0
    admin.grant.assert_not_awaited()
