"""Sends one bucket of frozen rows to the cluster: a connection, batches and answers.

What is sent, and what an answer means, is decided by `spark_jobs.schedule.window`. Back-pressure:
there are never more than five batches without an answer, the node holds its answers back while it
is behind, and rows are read from the frozen file only as they go out. While a node is overloaded,
full, unreachable or being replaced, the sender waits with growing pauses, until nothing has been
answered for `patience_ms`: then it fails, and the task may be run again.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import grpc
import numpy as np

from hourwheel import errors
from hourwheel.client import batch_builder
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.batch_builder import Draft
from hourwheel.client.inflight_batches import Published
from hourwheel.transport.access import PLAIN, Access
from hourwheel.transport.channel import Channel
from hourwheel.transport.grpc_errors import make_error
from hourwheel.transport.retry import Failure
from hourwheel.transport.stream import Stream, StreamBroken
from hourwheel.v1 import broker_pb2
from spark_jobs.schedule.window import (
    PROBE_NUMBER,
    Outcome,
    Piece,
    Resend,
    SendWindow,
    StreamKey,
    Tally,
)

ANSWER_TIMEOUT_MS: Final = 30_000.0
PATIENCE_MS: Final = 120_000.0
_CODE_NAMES: Final = {code.value[0]: code.name for code in grpc.StatusCode}
_Wire = Stream[broker_pb2.PublishStreamRequest, broker_pb2.PublishStreamResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSettings:
    """How to send a bucket."""

    server: str
    access: Access = PLAIN
    """How the nodes are known, and who sends."""
    is_resumed: bool
    """Someone may have sent of this bucket before: ask how far each stream is, then go on."""
    may_be_forgotten: bool = False
    """That is so long ago that the nodes may have forgotten its producers."""
    sends_in_doubt: bool = False
    """Send the rows of a forgotten producer all the same: some may then be scheduled twice."""
    patience_ms: float = PATIENCE_MS
    answer_timeout_ms: float = ANSWER_TIMEOUT_MS


def send(pieces: Iterator[Piece], settings: SendSettings) -> Tally:
    """Send all of a bucket; blocks until each row has its outcome.

    Raises:
        HourwheelError: no node took anything for `patience_ms`, or they lost rows they had taken.
            What was sent stays: send again, with `is_resumed`.
    """
    return asyncio.run(_send(pieces, settings))


def ask_cluster(server: str, access: Access = PLAIN) -> str:
    """The id of the cluster, a UUID as text.

    Raises:
        HourwheelError: no node can be reached.
    """

    async def ask() -> str:
        async with AsyncAdmin(
            server, tls=access.tls, token=access.token, user=access.user
        ) as admin:
            return (await admin.status()).cluster_id

    return asyncio.run(ask())


async def _send(pieces: Iterator[Piece], settings: SendSettings) -> Tally:
    tally = Tally()
    access = settings.access
    async with Channel(
        settings.server, tls=access.tls, token=access.token, user=access.user
    ) as channel:
        await _Sender(channel, SendWindow(pieces, tally), settings).run()
    return tally


class _Sender:
    """One bucket on its way."""

    def __init__(self, channel: Channel, window: SendWindow, settings: SendSettings) -> None:
        self._channel = channel
        self._window = window
        self._settings = settings
        self._pace = channel.new_pace()
        self._heard_ms = channel.clock.monotonic_ms()
        self._wire: _Wire | None = None

    async def run(self) -> None:
        """Until each row has its outcome."""
        while not self._window.is_done:
            try:
                await self._channel.connect(self._left_ms())
                await self._pump()
            except StreamBroken as broken:
                error, move = broken.failure.error, broken.move
            except Resend as resend:
                error = resend.error
                move = self._open().on_failure(error)
            except errors.Unavailable as unavailable:
                raise errors.Unavailable(
                    f"{unavailable.message} for {self._settings.patience_ms:.0f} ms"
                ) from None
            else:
                break
            self._drop()
            wait_ms = self._pace.on_failure(move)
            if not (error.retriable or isinstance(error, errors.Internal | errors.Cancelled)):
                raise error
            if wait_ms >= self._left_ms():
                raise error
            await asyncio.sleep(wait_ms / 1_000)
        self._drop()

    async def _pump(self) -> None:
        """Write and read until all is done. Raises StreamBroken or Resend."""
        while not self._window.is_done:
            await self._fill()
            if self._window.in_flight_count:
                await self._take_answer()

    async def _fill(self) -> None:
        """Write batches while there is room for them."""
        window = self._window
        while True:
            piece = window.take_sendable()
            if piece is not None:
                raw = batch_builder.build(piece.draft, piece.producer_id, piece.first)
                await self._write(piece.key, raw)
                continue
            begun = window.next_stream()
            if begun is None:
                return
            if not self._settings.is_resumed:
                window.begin_stream(begun.key, 0)
            elif window.in_flight_count:
                return  # the answer to a question comes behind theirs
            else:
                await self._resume(begun)

    async def _resume(self, begun: Piece) -> None:
        """Ask how much of a stream is taken, and go on there."""
        probe = Draft([b""], np.zeros(1, np.int64), begun.key.is_delay, None, 0, 0)
        await self._write(begun.key, batch_builder.build(probe, begun.producer_id, PROBE_NUMBER))
        answer = await self._read()
        if isinstance(answer, errors.OutOfOrderSequence):
            expected = int(answer.params.get("expected_sequence", "0"))
            self._window.begin_stream(begun.key, expected)
        elif isinstance(answer, errors.UnknownProducer):
            self._begin_unknown(begun.key)
        elif isinstance(answer, Published):
            raise errors.Internal("a node took a batch that it must refuse")
        elif answer.retriable or isinstance(answer, errors.Internal | errors.Cancelled):
            raise Resend(answer)
        else:
            self._window.end_stream(begun.key, Outcome.REFUSED, answer.reason, answer.message)

    def _begin_unknown(self, key: StreamKey) -> None:
        """The nodes do not know of any row of this stream."""
        if not self._settings.may_be_forgotten or self._settings.sends_in_doubt:
            self._window.begin_stream(key, 0)
            return
        detail = "begun so long ago that the nodes may have forgotten what they took of it"
        self._window.end_stream(key, Outcome.IN_DOUBT, errors.UnknownProducer.reason, detail)

    async def _take_answer(self) -> None:
        answer = await self._read()
        if isinstance(answer, Published):
            self._pace.on_success()
            self._window.on_published(answer)
        else:
            self._window.on_refused(answer)

    # --- the wire -------------------------------------------------------------------------------

    def _left_ms(self) -> float:
        """How long there may still be no answer."""
        silent_ms = self._channel.clock.monotonic_ms() - self._heard_ms
        return max(0.0, self._settings.patience_ms - silent_ms)

    def _open(self) -> _Wire:
        if self._wire is None:
            patience_ms = self._settings.patience_ms
            self._wire = self._channel.publish_stream(patience_ms, is_bulk=True)
        return self._wire

    def _drop(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.cancel()
        self._window.on_broken()

    async def _write(self, key: StreamKey, raw: bytes) -> None:
        wire = self._open()
        request = broker_pb2.PublishStreamRequest(topic=key.topic, record_batch=raw)
        try:
            async with asyncio.timeout(self._settings.answer_timeout_ms / 1_000):
                await wire.write(request)
        except TimeoutError:
            raise self._silence(wire) from None

    async def _read(self) -> Published | errors.HourwheelError:
        wire = self._open()
        sent_ms = self._channel.clock.monotonic_ms()
        try:
            async with asyncio.timeout(self._settings.answer_timeout_ms / 1_000):
                answer = await wire.read()
        except TimeoutError:
            raise self._silence(wire) from None
        now_ms = self._channel.clock.monotonic_ms()
        if answer.HasField("error"):
            detail = answer.error
            code = _CODE_NAMES.get(detail.code, "UNKNOWN")
            error = make_error(code, detail.reason, detail.message, detail.params)
            if not error.retriable:
                self._heard_ms = now_ms
            return error
        self._heard_ms = now_ms
        self._channel.note_answer(wire.address, now_ms - sent_ms)
        taken = answer.published
        return Published(
            taken.shard, taken.epoch, taken.base_sequence, taken.store_ms, taken.duplicate
        )

    def _silence(self, wire: _Wire) -> StreamBroken:
        error = errors.Timeout("the node does not answer")
        move = wire.on_failure(error, self._settings.answer_timeout_ms)
        return StreamBroken(Failure(error, is_definite=False), move)
