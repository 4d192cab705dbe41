"""Messages to publish, and ways to publish them."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.client import batch_builder
from hourwheel.client.batch_builder import Columns
from hourwheel.client.message import Message
from hourwheel.client.message_ids import PublishedIds
from hourwheel.client.producer import AsyncProducer
from hourwheel.transport.channel import Channel
from hourwheel.v1 import broker_pb2

TOPIC: Final = "bench"
BATCH: Final = 1_000
BODY_BYTES: Final = 200
DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
CALLERS: Final = 8
"""Tasks that publish side by side: enough to keep a producer's window full."""
_AHEAD: Final = 12
SEED: Final = 20_260_711


def make_bodies(count: int = BATCH, seed: int = SEED) -> list[bytes]:
    """`count` different bodies of random bytes."""
    raw = np.random.default_rng(seed).bytes(count * BODY_BYTES)
    return [raw[at : at + BODY_BYTES] for at in range(0, len(raw), BODY_BYTES)]


def spread_delays(
    count: int, seed: int = SEED, low_ms: int = HOUR_MS, span_ms: int = DAY_MS
) -> NDArray[np.int64]:
    """int64[count]: delays spread evenly over [low_ms, low_ms + span_ms), in random order."""
    return np.random.default_rng(seed).integers(low_ms, low_ms + span_ms, count)


def cut_columns(
    times_ms: NDArray[np.int64],
    bodies: Sequence[bytes],
    *,
    are_instants: bool = False,
    batch: int = BATCH,
) -> list[Columns]:
    """Columns of `batch` messages each; the bodies are used again and again."""
    made = []
    for at in range(0, len(times_ms), batch):
        part = times_ms[at : at + batch]
        chosen = bodies[: len(part)]
        if are_instants:
            made.append(Columns(bodies=chosen, due_ms=part))
        else:
            made.append(Columns(bodies=chosen, delay_ms=part))
    return made


async def publish_columns(
    producer: AsyncProducer, work: Sequence[Columns], callers: int = CALLERS
) -> list[PublishedIds]:
    """Publish all of `work`, each entry as a batch; gives the ids in its order."""
    done: list[PublishedIds | None] = [None] * len(work)
    numbered = iter(enumerate(work))

    async def call() -> None:
        for ordinal, columns in numbered:
            done[ordinal] = await producer.publish_batch(TOPIC, columns)

    await _side_by_side(call, callers)
    return [ids for ids in done if ids is not None]


async def publish_objects(
    producer: AsyncProducer,
    delays_ms: NDArray[np.int64],
    bodies: Sequence[bytes],
    callers: int = CALLERS,
) -> int:
    """Publish one `Message` for each delay, `BATCH` at once; making the objects is a part of it."""
    starts = iter(range(0, len(delays_ms), BATCH))
    published = 0

    async def call() -> None:
        nonlocal published
        for at in starts:
            delays = delays_ms[at : at + BATCH].tolist()
            messages = [
                Message(body, delay_ms=delay) for body, delay in zip(bodies, delays, strict=False)
            ]
            published += len(await producer.publish_many(TOPIC, messages))

    await _side_by_side(call, callers)
    return published


async def _side_by_side(call: Any, callers: int) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(call())


def prebuild(work: Sequence[Columns]) -> list[broker_pb2.PublishStreamRequest]:
    """Requests of the publish stream, without a producer's numbers, ready to be written."""
    return [
        broker_pb2.PublishStreamRequest(
            topic=TOPIC, record_batch=batch_builder.build(batch_builder.draft_columns(one), 0, 0)
        )
        for one in work
    ]


async def write_prebuilt(
    channel: Channel, requests: Sequence[broker_pb2.PublishStreamRequest], count: int
) -> None:
    """Write `count` requests, repeating `requests`, with a dozen unanswered at most.

    Raises:
        RuntimeError: one was refused.
    """
    stream = channel.publish_stream(1_000.0, is_bulk=True)
    room = asyncio.Semaphore(_AHEAD)

    async def read() -> None:
        for _ in range(count):
            answer = await stream.read()
            if answer.HasField("error"):
                raise RuntimeError(answer.error.message)
            room.release()

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        for request in itertools.islice(itertools.cycle(requests), count):
            await room.acquire()
            await stream.write(request)
    stream.cancel()
