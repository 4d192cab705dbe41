"""The one table of calls: what is handled, what OpenAPI shows, what the tests walk."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter

from hourwheel.gateway import calls, models
from hourwheel.gateway.calls import Call, Done
from hourwheel.transport import methods

JSON: Final = "application/json"
_ID: Final = "0" * 48
_RECEIPT: Final = "AQ" + "A" * 58


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One call of the API."""

    method: str
    path: str
    """With names in braces."""
    name: str
    """Of the operation, unique."""
    summary: str
    handle: Callable[[Call], Awaitable[Done]]
    twins: tuple[str, ...]
    """Paths of the gRPC calls that it makes: what those need, this needs."""
    answer: type[BaseModel]
    body: Any = None
    """Its type; None: it takes none."""
    example: Any = None
    query: tuple[str, ...] = ()
    status: int = 200
    is_waiting: bool = False
    """It may take its time on purpose: it ends when the gateway stops."""
    takes_key: bool = False
    """An Idempotency-Key counts."""

    @property
    def parts(self) -> list[str]:
        """Of the path."""
        return self.path.strip("/").split("/")

    def adapter(self) -> TypeAdapter[Any] | None:
        """What checks the body."""
        return None if self.body is None else TypeAdapter(self.body)


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/topics/{topic}/messages",
        name="publish",
        summary="Publish a message, or a list that is accepted or refused together.",
        handle=calls.publish,
        twins=(methods.PUBLISH.path,),
        body=models.NewMessages,
        answer=models.Published,
        example={"json": {"order": 17}, "delay": "30m", "keys": ["order-17"]},
        status=201,
        takes_key=True,
    ),
    Route(
        method="GET",
        path="/v1/topics/{topic}/messages",
        name="describeByKey",
        summary="The messages of a topic that have a key, those that were published last first.",
        handle=calls.describe_by_key,
        twins=(methods.LIST_BY_KEY.path,),
        answer=models.Described,
        query=("key", "limit"),
        example={"key": "order-17"},
    ),
    Route(
        method="POST",
        path="/v1/topics/{topic}/cancel",
        name="cancelByKey",
        summary="Take back all messages of a topic that have a key and are not released.",
        handle=calls.cancel_by_keys,
        twins=(methods.CANCEL.path,),
        body=models.Keys,
        answer=models.Outcomes,
        example={"keys": ["order-17"]},
    ),
    Route(
        method="POST",
        path="/v1/topics/{topic}/move",
        name="moveByKey",
        summary="Give all messages of a topic that have a key another due time.",
        handle=calls.move_by_keys,
        twins=(methods.RESCHEDULE.path,),
        body=models.MoveKeys,
        answer=models.Outcomes,
        example={"keys": ["order-17"], "delay": "1h"},
    ),
    Route(
        method="POST",
        path="/v1/messages/cancel",
        name="cancel",
        summary="Take messages back that are not released.",
        handle=calls.cancel_ids,
        twins=(methods.CANCEL.path,),
        body=models.Ids,
        answer=models.Outcomes,
        example={"ids": [_ID]},
    ),
    Route(
        method="POST",
        path="/v1/messages/move",
        name="move",
        summary="Give messages that are not released another due time. Their ids stay.",
        handle=calls.move_ids,
        twins=(methods.RESCHEDULE.path,),
        body=models.MoveIds,
        answer=models.Outcomes,
        example={"ids": [_ID], "due": "2030-03-01T09:00:00Z"},
    ),
    Route(
        method="GET",
        path="/v1/messages/{id}",
        name="describe",
        summary="Where a message is in its life.",
        handle=calls.describe,
        twins=(methods.DESCRIBE_MESSAGE.path,),
        answer=models.Description,
    ),
    Route(
        method="POST",
        path="/v1/groups/{group}/receive",
        name="receive",
        summary="Lease due messages, waiting up to wait_ms for the first one.",
        handle=calls.receive,
        twins=(methods.RECEIVE.path,),
        body=models.Receive,
        answer=models.Received,
        example={"topic": "orders", "max_messages": 10, "wait_ms": 0},
        is_waiting=True,
    ),
    Route(
        method="POST",
        path="/v1/groups/{group}/ack",
        name="ack",
        summary="Done with these messages: the group does not get them again.",
        handle=calls.ack,
        twins=(methods.ACK.path,),
        body=models.Receipts,
        answer=models.Finished,
        example={"receipts": [_RECEIPT]},
    ),
    Route(
        method="POST",
        path="/v1/groups/{group}/nack",
        name="nack",
        summary="Not done: deliver them again; or as dead letters, when attempts are used up or at"
        " once.",
        handle=calls.nack,
        twins=(methods.NACK.path,),
        body=models.Nack,
        answer=models.Finished,
        example={"receipts": [_RECEIPT], "delay": "1m"},
    ),
    Route(
        method="POST",
        path="/v1/groups/{group}/extend",
        name="extend",
        summary="Hold them for longer, or shorter, from now on.",
        handle=calls.extend,
        twins=(methods.CHANGE_INVISIBLE.path,),
        body=models.Extend,
        answer=models.Extended,
        example={"receipts": [_RECEIPT], "invisible": "1m"},
    ),
    Route(
        method="POST",
        path="/v1/groups/{group}/reset",
        name="reset",
        summary="Begin anew in a topic, further back or further on, or tell what that comes to.",
        handle=calls.reset,
        twins=(methods.RESET_GROUP.path,),
        body=models.Reset,
        answer=models.WasReset,
        example={"topic": "orders", "to": "first", "count_only": True},
    ),
)
"""A path that is a name in one route and a word in another is the word: routes with words first."""
