import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from hourwheel.cli import permissions
from hourwheel.client.access import Limits, Quota
from tests.unit.hourwheel.cli.conftest import Cli


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> AsyncMock:
    """In place of the cluster's administration: the fake node has none."""
    answers: dict[str, Any] = {"put_user": 7, "grant": 3, "put_quota": 5, "users": [], "grants": []}
    answers["quotas"] = [Quota("*", Limits(topics=0), 4)]
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


def test_quotas_are_put_listed_and_deleted(cli: Cli, admin: AsyncMock) -> None:
    put = ("access", "put-quota", "shop", "messages_per_s=100", "groups=0")
    assert cli(*put).exit_code == 0
    admin.put_quota.assert_awaited_with("shop", Limits(messages_per_s=100, groups=0))
    listed = cli("access", "quotas", "--json")
    assert json.loads(listed.stdout) == {
        "principal": "*",
        "messages_per_s": None,
        "bytes_per_s": None,
        "pending_messages": None,
        "topics": 0,
        "groups": None,
        "connections": None,
        "calls_in_flight": None,
        "version": 4,
    }
    assert "None" not in cli("access", "quotas").stdout
    assert cli("access", "delete-quota", "shop").exit_code == 0
    admin.delete_quota.assert_awaited_with("shop")
    for wrong in ("topics=-1", "topics=", "topics", "tropics=1", "topics=x", "topics=٣"):
        assert cli("access", "put-quota", "shop", wrong).exit_code != 0
