"""Whether a caller may do by ids what it may do on some topics, and not on all.

The topics of the messages are looked up, and each is checked: a call is carried out as a whole or
refused as a whole. The refusal has the same words as that of a caller without any permission, so it
does not reveal whether such a message exists in any topic. Nor does its timing: a message of a
topic that the caller may not use costs the same work as an id that no message has, in one turn of
the caller's, and refusals leave at fixed intervals. For a caller that may use no topic at all,
nothing is looked up.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from hourwheel import errors
from node.access.control import CALLER, AccessControl
from node.access.permissions import Rule, topic_resource
from node.contracts.access import ANONYMOUS, ResourceKind
from node.contracts.message_topics import TopicsPort

_REFUSED_AFTER_S: Final = 0.02
"""Refusals leave so long after the call began, or twice as long, and so on: look-ups differ by far
less, wherever a message is."""
_SHOWN_MAX: Final = 100


class MessageAccess:
    """See the top of this file."""

    def __init__(self, access: AccessControl, engine: TopicsPort) -> None:
        """Decide by the policy of `access`; `engine` finds topics."""
        self._access, self._engine = access, engine

    async def check(self, rule: Rule, request: Any, denied: errors.PermissionDenied) -> None:
        """Let a call go on that a caller may not make on all topics, if it names what it may.

        Raises:
            PermissionDenied: `denied`, with the places of ids in the request, the first ones, that
                name no message of a topic on which the caller may.
            InvalidMessageId, InvalidArgument, TooManyItems: the ids are none, or too many.
            Overloaded, NotMaster, ShuttingDown: see `TopicsPort`.
        """
        if rule.ids is None or CALLER.get() == ANONYMOUS:
            raise denied
        ids = rule.ids(request)
        if not len(ids):
            raise denied
        if not self._access.allows_some(rule, ResourceKind.TOPIC):
            raise _with_places(denied, range(len(ids)))
        begun_s = asyncio.get_running_loop().time()

        def may(topic: str) -> bool:
            return self._access.allows(rule, (topic_resource(topic),))

        found = await self._engine.topics_of(ids, may=may)
        # By the policy of this moment, and not of that before the look-up.
        missing = np.flatnonzero(~found.are_allowed(may))
        if len(missing):
            await _until_the_next(begun_s)
            raise _with_places(denied, missing.tolist())


def _with_places(denied: errors.PermissionDenied, places: Sequence[int]) -> errors.PermissionDenied:
    """The refusal, with the first ones of the ids' places in the request."""
    denied.params["indexes"] = ",".join(map(str, places[:_SHOWN_MAX]))
    return denied


async def _until_the_next(begun_s: float) -> None:
    """Wait until a whole number of `_REFUSED_AFTER_S` has passed."""
    passed_s = asyncio.get_running_loop().time() - begun_s
    await asyncio.sleep(_REFUSED_AFTER_S - passed_s % _REFUSED_AFTER_S)
