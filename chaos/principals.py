"""Who the clients are, where the nodes have TLS and access control.

    admin    may do everything: a user of each node's own file
    load     publishes, receives, cancels and looks: a user of the cluster, with grants
    guest    publishes: its grant is taken away and given back while it works

Without access control all of them are anonymous, and may do what they like.
"""

import asyncio
import secrets
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from chaos.certificates import Authority
from chaos.history import GrantChange, History
from hourwheel import AsyncAdmin, errors
from hourwheel.clock import Clock
from hourwheel.transport.access import Tls

ADMIN: Final = "admin"
LOAD: Final = "load"
GUEST: Final = "guest"
_LOAD_GRANTS: Final = (
    ("topic", "*", ("publish", "receive", "cancel", "look", "administer")),
    ("group", "*", ("receive", "look", "administer")),
    ("cluster", "", ("look",)),
)
"""The last one is asked for to see that all of them hold."""
_SECRET_BYTES: Final = 16
LOOK_S: Final = 0.1
_NOT_YET: Final = (
    *(errors.FailedPrecondition, errors.PermissionDenied, errors.Unauthenticated),
    *(errors.Unavailable, errors.Timeout),
)


@dataclass(frozen=True)
class Principals:
    """Their secrets, and the authorities that they trust."""

    authority: Path
    users_file: Path
    secrets: dict[str, str]

    @classmethod
    def make(cls, folder: Path, authority: Authority, tree: Path) -> Self:
        """Make secrets, and the file with the administrator's hash.

        Raises:
            CalledProcessError: the node's own command cannot.
        """
        made = {name: secrets.token_urlsafe(_SECRET_BYTES) for name in (ADMIN, LOAD, GUEST)}
        users_file = folder / "users"
        hashed = subprocess.run(
            [sys.executable, "-m", "node", "hash-secret", ADMIN],
            input=f"{made[ADMIN]}\n",
            cwd=tree,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        users_file.write_text(hashed.stdout)
        users_file.chmod(0o600)
        return cls(authority.certificate, users_file, made)

    def options(self, name: str) -> dict[str, Any]:
        """Of a client of one of them."""
        return {"tls": Tls(ca=self.authority), "user": (name, self.secrets[name])}

    def sections(self, certificate_file: str, key_file: str) -> dict[str, dict[str, Any]]:
        """Of the configuration of the node that has this certificate."""
        return {
            "tls": {
                "certificate_file": certificate_file,
                "key_file": key_file,
                "authority_file": str(self.authority),
            },
            "authentication": {"users_file": str(self.users_file)},
            "access": {"is_on": True, "administrators": ADMIN},
        }

    async def introduce(self, nodes: Iterable[str], hang_s: float) -> None:
        """Make the load's and the guest's user, and the load's grants, known to these nodes.

        Raises:
            TimeoutError: they do not come to know them.
        """
        addresses = list(nodes)
        async with asyncio.timeout(hang_s), AsyncAdmin(addresses, **self.options(ADMIN)) as admin:
            for name in (LOAD, GUEST):
                await _until_done(partial(admin.put_user, name, self.secrets[name]))
            for kind, resource, allowed in _LOAD_GRANTS:
                await _until_done(partial(admin.grant, LOAD, allowed, kind, resource))
            for address in addresses:
                async with AsyncAdmin(address, **self.options(LOAD)) as load:
                    await _until_done(load.members)


async def _until_done(ask: Callable[[], Awaitable[object]]) -> None:
    while True:
        try:
            await ask()
        except _NOT_YET:
            await asyncio.sleep(LOOK_S)
        else:
            return


class GuestGrant:
    """The guest's one grant, as an administrator gives and takes it."""

    def __init__(self, admin: AsyncAdmin, topic: str, history: History, clock: Clock) -> None:
        """It has none. Changes go to `history`, which holds one behind the other."""
        self._admin, self._topic, self._history, self._clock = admin, topic, history, clock

    async def give(self) -> None:
        """Until somebody says that it is given."""
        with self._noted(is_allowed=True):
            await _until_done(partial(self._admin.grant, GUEST, ["publish"], "topic", self._topic))

    async def take(self) -> None:
        """Until somebody says that it is gone."""
        # Not found: it went with a call whose answer was lost.
        with self._noted(is_allowed=False), suppress(errors.NotFound):
            await _until_done(partial(self._admin.revoke, GUEST, "topic", self._topic))

    @contextmanager
    def _noted(self, *, is_allowed: bool) -> Iterator[None]:
        requested_ms = self._clock.wall_ms()
        answered_ms: float | None = None
        try:
            yield
            answered_ms = self._clock.wall_ms()
        finally:
            change = GrantChange(is_allowed, requested_ms, answered_ms)
            self._history.grant_changes.append(change)
