"""What a worker and its children say to each other, over a socket between them.

Frames are those of `hourwheel.formats.frames`. A child says `{"ready": true}` first. Then the
worker sends one frame for each message that is to be handled, with a number, and the child answers
with the number and the result, in any order. The end of the stream ends the child.
"""

import asyncio
from dataclasses import fields
from typing import Final

from hourwheel.formats.frames import LENGTHS_BYTES, Frame, pack, unpack, unpack_lengths
from hourwheel.workers.handler import MessageContext
from hourwheel.workers.results import Result, ResultKind

__all__ = ["Frame", "context_of", "pack", "pack_result", "pack_work", "read", "result_of"]

_CONTEXT_FIELDS: Final = [one.name for one in fields(MessageContext) if one.name != "body"]


async def read(stream: asyncio.StreamReader) -> Frame | None:
    """The next one; None: the other side is gone.

    Raises:
        Internal: it is none.
    """
    try:
        head_len, body_len = unpack_lengths(await stream.readexactly(LENGTHS_BYTES))
        raw = await stream.readexactly(head_len + body_len)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return unpack(raw, head_len)


def pack_work(number: int, handler_index: int, context: MessageContext) -> bytes:
    """A message for a child."""
    head = {name: getattr(context, name) for name in _CONTEXT_FIELDS}
    return pack(Frame({"number": number, "handler": handler_index, **head}, context.body))


def context_of(frame: Frame) -> MessageContext:
    """The message of such a frame."""
    given = {name: frame.head[name] for name in _CONTEXT_FIELDS}
    given["tags"], given["keys"] = tuple(given["tags"]), tuple(given["keys"])
    return MessageContext(body=frame.body, **given)


def pack_result(number: int, result: Result, *, is_spoiled: bool) -> bytes:
    """What became of it. `is_spoiled`: the child is not to get any more."""
    head = {
        "number": number,
        "kind": int(result.kind),
        "delay_ms": result.delay_ms,
        "error": result.error,
        "is_spoiled": is_spoiled,
    }
    return pack(Frame(head))


def result_of(frame: Frame) -> Result:
    """The result of such a frame."""
    head = frame.head
    return Result(ResultKind(head["kind"]), head["delay_ms"], head["error"])
