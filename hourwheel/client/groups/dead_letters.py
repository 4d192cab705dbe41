"""A group's dead letters: looked through with their origin, and given to the group again."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from hourwheel.errors import InvalidArgument
from hourwheel.filter_language.inputs import as_filter
from hourwheel.filter_language.text import FilterExpression
from hourwheel.filter_language.wire import filter_to_wire
from hourwheel.formats import message_id, meta
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.meta import MessageMeta
from hourwheel.instants import check_count
from hourwheel.limits import DEAD_LETTER_PAGE_SIZE_MAX
from hourwheel.outcomes import DeadLetterReason
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import LIST_DEAD_LETTERS, REDRIVE_DEAD_LETTERS
from hourwheel.transport.pages import pages_of, sum_of_pages
from hourwheel.v1 import filter_pb2, groups_pb2

PAGE_SIZE: Final = 500
Ids: TypeAlias = Sequence[MessageId | str]


@dataclass(frozen=True, slots=True)
class DeadLetterMessage:
    """A dead letter of a group, and where it came from."""

    message_id: MessageId
    topic: str
    """That it was published to; empty if that was deleted, or the caller may not look at it."""
    due_ms: int
    """When it was due, in milliseconds since the Unix epoch."""
    last_due_ms: int
    """When its last delivery to the group was due. It became a dead letter after that."""
    attempts: int
    """How often the group got it."""
    reason: DeadLetterReason
    meta: MessageMeta
    body_bytes: int
    body: bytes = b""
    """Empty where bodies were not asked for."""
    is_corrupt: bool = False
    """Its bytes are damaged on the master, and its metadata and body are left out."""
    rejected_because: str = ""
    """Why a consumer rejected it, as far as the master remembers."""


@dataclass(frozen=True, slots=True)
class Redriven:
    """What a re-drive has come to so far."""

    redriven_count: int = 0
    """Given to the group again."""
    unsubscribed_count: int = 0
    """Left alone: the group does not read the topic that they came from."""
    corrupt_count: int = 0
    """Left alone, where there is a filter: their bytes are damaged."""
    scanned_count: int = 0


class DeadLetterAdmin:
    """What `AsyncAdmin` does with dead letters."""

    _channel: Channel

    def list_dead_letters(
        self,
        group: str,
        filter: str | FilterExpression | None = None,  # noqa: A002
        *,
        topic: str = "",
        ids: Ids | None = None,
        page_size: int = PAGE_SIZE,
        with_bodies: bool = False,
    ) -> AsyncIterator[DeadLetterMessage]:
        """A group's dead letters, in the order in which they became such.

        Those that the group was given again, or has acknowledged in `%DLQ%<group>`, are left out.

        Args:
            group: the group.
            filter: tags, or `Sql("...")`; None: everything.
            topic: only those published to this topic; empty: to any.
            ids: only these; None: all.
            page_size: how many are fetched at once, 1 to 1,000.
            with_bodies: whether bodies are wanted, too.

        Raises:
            UnknownGroup, UnknownTopic: there is none.
            InvalidFilter: `params["position"]` says where.
            InvalidMessageId: naming a text that is no id.
            InvalidArgument: `page_size` is less than 1, or no whole number.
        """
        check_count(page_size, "page_size", at_least=1)
        request = groups_pb2.ListDeadLettersRequest(
            group=group,
            topic=topic,
            filter=_to_wire(filter),
            page_size=page_size,
            with_bodies=with_bodies,
        )
        return _list(self._channel, request, _pieces(ids))

    async def redrive(
        self,
        group: str,
        filter: str | FilterExpression | None = None,  # noqa: A002
        *,
        topic: str = "",
        ids: Ids | None = None,
        on_progress: Callable[[Redriven], None] | None = None,
    ) -> Redriven:
        """Give dead letters to their group again, as retries of the topics that they came from.

        Each is given back once, also where this fails in the middle and is called again. What
        becomes a dead letter after this has begun is left alone.

        Args:
            group: the group; no other group gets them.
            filter: tags, or `Sql("...")`; "*" stands for all.
            topic: only those published to this topic; empty: to any.
            ids: only these, instead of a filter.
            on_progress: called now and then with what is done so far.

        Raises:
            InvalidArgument: neither a filter nor ids, or both.
            FailedPrecondition: a node of an earlier version is in the cluster.
            HourwheelError: a call failed; what is given back stays so, and calling again is safe.
        """
        if (filter is None) == (ids is None):
            raise InvalidArgument("name messages, or give a filter: * stands for all")
        request = groups_pb2.RedriveDeadLettersRequest(
            group=group, topic=topic, filter=_to_wire(filter)
        )
        done = Redriven()
        for piece in _pieces(ids):
            request.message_ids[:], request.page_token = piece, b""
            done = await sum_of_pages(
                self._channel, REDRIVE_DEAD_LETTERS, request, done, on_progress
            )
        return done


async def _list(
    channel: Channel, request: groups_pb2.ListDeadLettersRequest, pieces: list[list[str]]
) -> AsyncIterator[DeadLetterMessage]:
    """One by one, page by page. Raises HourwheelErrors."""
    for piece in pieces:
        request.message_ids[:], request.page_token = piece, b""
        async for answer in pages_of(channel, LIST_DEAD_LETTERS, request):
            for one in answer.messages:
                yield _message(one)


def _pieces(ids: Ids | None) -> list[list[str]]:
    """So many ids as a call may name; one empty piece where all are meant."""
    if ids is None:
        return [[]]
    if isinstance(ids, str):
        raise InvalidArgument("ids are a list, and not one text")
    texts = [str(one if isinstance(one, MessageId) else message_id.parse(one)) for one in ids]
    most = DEAD_LETTER_PAGE_SIZE_MAX
    return [texts[first : first + most] for first in range(0, len(texts), most)]


def _to_wire(wanted: str | FilterExpression | None) -> filter_pb2.FilterExpression | None:
    expression = as_filter(wanted)
    return None if expression is None else filter_to_wire(expression)


def _message(one: groups_pb2.DeadLetterMessage) -> DeadLetterMessage:
    return DeadLetterMessage(
        message_id=message_id.parse(one.message_id),
        topic=one.topic,
        due_ms=one.due_ms,
        last_due_ms=one.last_due_ms,
        attempts=one.attempts,
        reason=DeadLetterReason(one.reason),
        meta=meta.decode(one.meta.SerializeToString()) if one.HasField("meta") else meta.NO_META,
        body_bytes=one.body_bytes,
        body=one.body,
        is_corrupt=one.is_corrupt,
        rejected_because=one.rejected_because,
    )
