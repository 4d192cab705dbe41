"""Callers for tests of access control: each is who it says in its metadata, as `who`."""

from typing import Any

from hourwheel import errors
from node.contracts.access import ANONYMOUS, Method, Principal


async def identify(context: Any) -> Principal:
    """Who calls. Raises PermissionDenied: a liar."""
    name = dict(context.invocation_metadata() or ()).get("who", "")
    if name == "liar":
        raise errors.PermissionDenied("no such caller")
    return Principal(name, Method.USER) if name else ANONYMOUS
