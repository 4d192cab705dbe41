"""Callers of the HTTP API with access control on: users of a node, `root` and `eve` among them."""

import asyncio
from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import Any

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.transport.access import Tls
from node.access.user_secrets import hash_of
from tests.support.eventually import before_the_next_look
from tests.support.http_world import HttpWorld
from tests.support.tokens import AUDIENCE, ISSUER, Signer


@cache
def _users(*names: str) -> str:
    hashed = hash_of("secret")
    return "".join(f"{name}:{hashed}\n" for name in ("root", "eve", *names))


def basic(name: str, secret: str = "secret") -> str:
    return "Basic " + b64encode(f"{name}:{secret}".encode()).decode()


def values_of(folder: Path, signer: Signer, *names: str) -> dict[str, Any]:
    """Of a node that knows these users; the secret of each is `secret`."""
    (folder / "users").write_text(_users(*names))
    (folder / "keys.pem").write_bytes(signer.public_pem)
    return {
        "access": {"is_on": True, "administrators": "root"},
        "authentication": {
            "users_file": str(folder / "users"),
            "token_keys_file": str(folder / "keys.pem"),
            "token_issuer": ISSUER,
            "token_audience": AUDIENCE,
        },
        "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
    }


async def administered(world: HttpWorld, change: Any, tls: Tls | None = None) -> None:
    """Until the node is registered, and knows its grants."""
    async with AsyncAdmin(world.node.address, user=("root", "secret"), tls=tls) as admin:
        async with asyncio.timeout(60):
            while True:
                try:
                    await change(admin)
                except (errors.FailedPrecondition, errors.Unavailable):
                    await before_the_next_look()
                else:
                    return
