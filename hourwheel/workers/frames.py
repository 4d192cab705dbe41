"""What a worker and its children say to each other, over a socket between them.

    bytes 0..3    length of the head, little-endian
    bytes 4..7    length of the body
    head          JSON
    body          bytes of a message, or none

A child says `{"ready": true}` first. Then the worker sends one frame for each message that is to be
handled, with a number, and the child answers with the number and the result, in any order. The end
of the stream ends the child.
"""

import asyncio
import json
from dataclasses import fields
from struct import Struct
from typing import Any, Final, NamedTuple

from hourwheel import limits
from hourwheel.errors import Internal
from hourwheel.workers.handler import MessageContext
from hourwheel.workers.results import Result, ResultKind

_LENGTHS: Final = Struct("<II")
HEAD_BYTES_MAX: Final = 1 << 20
"""Metadata are 32 KiB at most, and JSON makes at most six characters of one."""
_CONTEXT_FIELDS: Final = [one.name for one in fields(MessageContext) if one.name != "body"]


class Frame(NamedTuple):
    """One of them."""

    head: dict[str, Any]
    body: bytes = b""


def pack(frame: Frame) -> bytes:
    """Its bytes."""
    head = json.dumps(frame.head, separators=(",", ":")).encode()
    return b"".join((_LENGTHS.pack(len(head), len(frame.body)), head, frame.body))


async def read(stream: asyncio.StreamReader) -> Frame | None:
    """The next one; None: the other side is gone.

    Raises:
        Internal: it is none.
    """
    try:
        head_len, body_len = _LENGTHS.unpack(await stream.readexactly(_LENGTHS.size))
        if head_len > HEAD_BYTES_MAX or body_len > limits.MESSAGE_BODY_BYTES_MAX:
            raise Internal(f"a frame of {head_len} and {body_len} bytes")
        raw = await stream.readexactly(head_len + body_len)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return Frame(json.loads(raw[:head_len]), raw[head_len:])


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
