"""Messages looked up by key, from request to answer, through an engine."""

from pathlib import Path
from typing import Any

from hourwheel.outcomes import MessageState
from hourwheel.v1 import lookup_pb2
from node.access.control import AccessControl
from node.api.lookup import Lookup
from tests.support.engine_world import EngineWorld, within
from tests.unit.node.broker.keys.test_service import cancel, publish

NO_CONTEXT: Any = None


async def test_list_by_key_when_pages_are_small(tmp_path: Path) -> None:
    async with EngineWorld(tmp_path) as world:
        await publish(world, ["a", "b", "a", "a"], 5_000)
        await cancel(world, "b")
        lookup = Lookup(world.engine, AccessControl())
        found: list[tuple[str, int]] = []
        for key in ("a", "b"):
            request = lookup_pb2.ListByKeyRequest(topic="orders", key=key, page_size=2)
            while True:
                answer = await within(lookup.list_by_key(request, NO_CONTEXT))
                found += [(one.message_id[16:32], one.state) for one in answer.messages]
                request.page_token = answer.next_page_token
                if not request.page_token:
                    break
    states = [MessageState.PENDING] * 3 + [MessageState.CANCELLED]
    numbers = (3, 2, 0, 1)
    assert found == [(f"{at:016x}", state) for at, state in zip(numbers, states, strict=True)]
