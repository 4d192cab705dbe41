"""Who made a call that another node passes on: written here by one node, and believed by the other.

It is believed on the port where nodes prove who they are, and nowhere else: what a client sends
under this name is neither looked at nor passed on.
"""

from typing import Any, Final

from hourwheel import errors
from node.access.control import CALLER
from node.contracts.access import ANONYMOUS, Method, Principal

PRINCIPAL: Final = "hourwheel-principal-bin"
"""Key of the call's metadata; its value is the method, a line's end, and the name, in UTF-8."""


def caller_metadata() -> tuple[tuple[str, bytes], ...]:
    """What is sent of the caller of the call that is being worked on; nothing of anonymous ones."""
    caller = CALLER.get()
    if caller == ANONYMOUS:
        return ()
    return ((PRINCIPAL, f"{caller.method.value}\n{caller.name}".encode()),)


async def forwarded_caller(context: Any) -> Principal:
    """Who made it, by the node that passes it on.

    Raises:
        PeerRefused: the metadata is not what nodes send.
    """
    raw = dict(context.invocation_metadata() or ()).get(PRINCIPAL)
    if raw is None:
        return ANONYMOUS
    try:
        method, _, name = raw.decode().partition("\n")
        return Principal(name, Method(method))
    except ValueError:
        raise errors.PeerRefused("a node passes on a call without a valid principal") from None
