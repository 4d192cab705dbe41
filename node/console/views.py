"""What the console shows, asked of the cluster through the public client. On the node's loop.

Every answer is shared for a moment by all who ask (`recent.py`). Lists are given in pages, so that
neither a browser nor a turn of the loop sees ten thousand groups at once.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any, Final

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.catalog import GroupInfo, TopicInfo
from hourwheel.client.cluster_status import ClusterStatus, find_master
from hourwheel.client.node_probe import NodeProbe
from hourwheel.client.pending import PendingMessage
from hourwheel.client.wheel import WheelDescription
from hourwheel.errors import HourwheelError
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats import message_id
from hourwheel.formats.message_id import MessageId
from hourwheel.outcomes import MessageState
from hourwheel.transport.access import PLAIN, Access
from hourwheel.types import NodeId
from node.console.history import History
from node.console.recent import Recent
from node.console.snapshot import snapshot

PAGE_SIZE: Final = 50
"""Topics, groups or messages on one page."""
WHEEL_BOUND_COUNT_MAX: Final = 400
AHEAD_MS: Final = (0, 60_000, 3_600_000, 86_400_000, 365 * 86_400_000)
"""Bounds from now on: what falls due in the next minute, in the rest of the hour, day, year."""
_SECOND_MS: Final = 1_000
BODY_SHOWN_BYTES_MAX: Final = 4_096
"""Of a message's body."""
DEAD_LETTERS: Final = "%DLQ%"
"""With a group's name behind it: the topic of its dead letters."""
_STATUS_AGE_MS: Final = 1_000.0
_WHEEL_AGE_MS: Final = 1_000.0
_CATALOG_AGE_MS: Final = 5_000.0
_PROBE_MS: Final = 1_500.0
_LIST_AT_ONCE: Final = 100
"""Names that one call lists: about a millisecond of the loop."""
_GROUPS_AT_ONCE: Final = 4
_SEARCHED_TOPIC_COUNT_MAX: Final = 200
"""Topics that are looked through for a pending message."""
_SEARCHED_MESSAGE_COUNT_MAX: Final = 2_000
"""Messages of each of them that are due in the same millisecond."""
_CHARACTER_BYTES_MAX: Final = 4
"""Of one character in UTF-8."""
_BODY_ORDINAL_MAX: Final = 50
"""A body is fetched together with those before it that are due in the same millisecond."""


class Views:
    """See the top of this file."""

    def __init__(
        self,
        node_id: NodeId,
        own_address: str,
        admin: AsyncAdmin,
        *,
        access: Access = PLAIN,
        changes_allowed: bool,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], float],
    ) -> None:
        """Nothing is asked yet.

        Args:
            node_id: of the node behind the console.
            own_address: where that one is reached from here, host:port.
            admin: of the cluster; the caller closes it.
            access: how the nodes are known.
            changes_allowed: whether the configuration lets the console change anything.
            now_ms: the wall clock.
            monotonic_ms: for how old an answer is.
        """
        self._node_id, self._own_address, self._admin = node_id, own_address, admin
        self._access = access
        self._changes_allowed, self._now_ms = changes_allowed, now_ms
        self._recent = Recent(monotonic_ms)
        self._probes: dict[str, NodeProbe] = {}
        self._known: ClusterStatus | None = None
        self._history = History()

    async def close(self) -> None:
        """Close the connections to the nodes."""
        await self._recent.close()
        for probe in self._probes.values():
            await probe.close()

    def forget(self) -> None:
        """Something was changed: what was asked before is not shown any more."""
        self._recent.forget()

    # --- cluster --------------------------------------------------------------------------------

    async def cluster(self, since_ms: int) -> dict[str, Any]:
        """The cluster now, and what was counted after `since_ms`.

        Raises:
            Unavailable: the own node does not answer, and never has.
        """
        shown = await self._recent.get("cluster", _STATUS_AGE_MS, self._read_cluster)
        return {**shown, "history": self._history.since(since_ms)}

    async def read_only_because(self) -> str:
        """Why nothing can be changed now; empty: it can. Raises as `cluster`."""
        found = await self._recent.get("cluster", _STATUS_AGE_MS, self._read_cluster)
        return str(found["read_only_because"])

    async def _read_cluster(self) -> dict[str, object]:
        own = await self._probe(self._own_address)
        self._known = own or self._known
        if self._known is None:
            raise errors.Unavailable("the node behind this console does not answer")
        others = [one for one in self._known.nodes if one.node_id != self._node_id]
        answers = await asyncio.gather(*(self._probe(one.address) for one in others))
        statuses = {
            node.node_id: answer
            for node, answer in zip(others, answers, strict=True)
            # At that address another cluster may live by now.
            if answer is not None and answer.cluster_id == self._known.cluster_id
        }
        if own is not None:
            statuses[self._node_id] = own
        await self._close_probes({self._own_address, *(one.address for one in others)})
        now_ms = self._now_ms()
        if (master := find_master(statuses)) is not None:
            self._history.add(now_ms, *master)
        shown = snapshot(
            self._node_id, self._known, statuses, changes_allowed=self._changes_allowed
        )
        return {**shown, "now_ms": now_ms}

    async def _probe(self, address: str) -> ClusterStatus | None:
        probe = self._probes.get(address)
        if probe is None:
            probe = self._probes[address] = NodeProbe(address, self._access)
        try:
            return await probe.status(_PROBE_MS)
        except HourwheelError:
            return None

    async def _close_probes(self, wanted: set[str]) -> None:
        for address in self._probes.keys() - wanted:
            await self._probes.pop(address).close()

    # --- the wheel ------------------------------------------------------------------------------

    async def wheel(self, from_ms: int, step_ms: int, count: int) -> dict[str, object]:
        """How many messages are pending in each of `count` steps from `from_ms` on.

        Raises:
            InvalidArgument: too many steps, or none.
        """
        if not 0 < count < WHEEL_BOUND_COUNT_MAX or step_ms < 1 or from_ms < 0:
            raise errors.InvalidArgument("the wheel is asked for in 1 to 399 steps")
        bounds = [from_ms + step_ms * at for at in range(count + 1)]
        found = await self._describe_wheel(bounds)
        now_ms = self._now_ms()
        second_ms = now_ms - now_ms % _SECOND_MS
        ahead = await self._describe_wheel([second_ms + span_ms for span_ms in AHEAD_MS])
        return {
            "now_ms": now_ms,
            "clock_ms": found.clock_ms,
            "from_ms": from_ms,
            "step_ms": step_ms,
            "counts": [one.count for one in found.ranges],
            "are_estimates": [one.is_estimate for one in found.ranges],
            "ahead_counts": [one.count for one in ahead.ranges],
            "overdue_count": ahead.earlier_count,
            "later_count": ahead.later_count,
            "pending_count": ahead.pending_count,
            "cancelled_count": ahead.cancelled_count,
        }

    async def _describe_wheel(self, bounds_ms: list[int]) -> WheelDescription:
        return await self._recent.get(
            ("wheel", *bounds_ms[:2], bounds_ms[-1], len(bounds_ms)),
            _WHEEL_AGE_MS,
            lambda: self._admin.describe_wheel(bounds_ms),
        )

    # --- topics and groups ----------------------------------------------------------------------

    async def topics(self, search: str, after: str) -> dict[str, object]:
        """A page of topics whose names have `search` in them, from behind the name `after` on."""
        found = [one for one in await self._all_topics() if not one.name.startswith("%")]
        page, more = _page(found, search, after)
        return {
            "topics": [
                {
                    "name": one.name,
                    "queues": one.queue_count,
                    "released": one.released_count,
                    "retention_ms": one.retention_ms,
                    "version": one.version,
                }
                for one in page
            ],
            "total": len(found),
            "more_after": more,
        }

    async def _all_topics(self) -> list[TopicInfo]:
        return await self._recent.get(
            "topics",
            _CATALOG_AGE_MS,
            lambda: self._admin.topics(include_internal=True, page_size=_LIST_AT_ONCE),
        )

    async def groups(self, search: str, after: str) -> dict[str, object]:
        """A page of groups, as `topics`; each with what it has still to do."""
        found = await self._recent.get(
            "groups", _CATALOG_AGE_MS, lambda: self._admin.groups(page_size=_LIST_AT_ONCE)
        )
        page, more = _page(found, search, after)
        groups = await self._recent.get(
            ("lags", search, after), _STATUS_AGE_MS, lambda: self._with_lags(page)
        )
        dead = {
            one.name.removeprefix(DEAD_LETTERS): one.released_count
            for one in await self._all_topics()
            if one.name.startswith(DEAD_LETTERS)
        }
        return {
            "groups": [_group(one, dead.get(one.name, 0)) for one in groups],
            "total": len(found),
            "more_after": more,
        }

    async def _with_lags(self, groups: Sequence[GroupInfo]) -> list[GroupInfo]:
        """Those of them that are still there."""
        places = asyncio.Semaphore(_GROUPS_AT_ONCE)

        async def ask(name: str) -> GroupInfo | None:
            async with places:
                try:
                    return await self._admin.get_group(name)
                except errors.UnknownGroup:
                    return None

        found = await asyncio.gather(*(ask(one.name) for one in groups))
        return [one for one in found if one is not None]

    # --- access ---------------------------------------------------------------------------------

    async def access(self, search: str) -> dict[str, object]:
        """Grants, users and quotas of whose name has `search` in it; the first of each.

        None in their place: who is logged in may not see them.
        """
        found = await self._recent.get("access", _CATALOG_AGE_MS, self._read_access)
        shown: dict[str, object] = {}
        for name, values in found.items():
            matching = _of_whom(values, search)
            shown[name] = None if matching is None else matching[:PAGE_SIZE]
            shown[f"{name}_total"] = len(matching or ())
        return shown

    async def _read_access(self) -> dict[str, list[dict[str, object]] | None]:
        try:
            grants = await self._admin.grants()
            users, quotas = await self._admin.users(), await self._admin.quotas()
        except errors.PermissionDenied:
            return dict.fromkeys(("grants", "users", "quotas"))
        return {
            "grants": [{**asdict(one), "operations": sorted(one.operations)} for one in grants],
            "users": [asdict(one) for one in users],
            "quotas": [asdict(one) for one in quotas],
        }

    # --- messages -------------------------------------------------------------------------------

    async def message(self, text: str) -> dict[str, object]:
        """The life of a message, as far as the cluster knows it. Raises `InvalidMessageId`."""
        of = message_id.parse(text)
        found = await self._admin.describe(of)
        shown: dict[str, object] = {
            "message_id": str(of),
            "epoch": of.epoch,
            "sequence": of.sequence,
            "due_ms": found.due_ms,
            "state": found.state.name,
            "is_damaged": found.is_damaged,
            "dead_letters": [
                {**asdict(one), "reason": one.reason.name} for one in found.dead_letters
            ],
            "dead_letters_complete": found.dead_letter_search_is_complete,
            "pending": None,
            "now_ms": self._now_ms(),
        }
        if found.state is MessageState.PENDING:
            shown["pending"] = await self._find_pending(of)
        return shown

    async def _find_pending(self, of: MessageId) -> dict[str, object] | None:
        """What a message that is scheduled has with it; None: it was not found."""
        topics = [one.name for one in await self._all_topics() if not one.name.startswith("%")]
        for topic in islice(topics, _SEARCHED_TOPIC_COUNT_MAX):
            ordinal = 0
            at = self._admin.list_pending(topic, from_ms=of.due_ms, to_ms=of.due_ms + 1)
            async for one in at:
                if one.message_id == of:
                    body = await self._find_body(topic, one, ordinal)
                    return {"topic": topic, **pending_message(one, body)}
                ordinal += 1
                if ordinal >= _SEARCHED_MESSAGE_COUNT_MAX:
                    break
        return None

    async def _find_body(self, topic: str, of: PendingMessage, ordinal: int) -> bytes | None:
        if ordinal >= _BODY_ORDINAL_MAX:
            return None
        listed = self._admin.list_pending(
            topic,
            from_ms=of.due_ms,
            to_ms=of.due_ms + 1,
            page_size=ordinal + 1,
            with_bodies=True,
        )
        async for one in listed:
            if one.message_id == of.message_id:
                return one.body
        return None

    async def pending(
        self, topic: str, wanted: FilterExpression | None, from_ms: int, to_ms: int
    ) -> dict[str, object]:
        """The first messages of a topic that are scheduled and match. Raises as `list_pending`."""
        listed = self._admin.list_pending(
            topic, wanted, from_ms=from_ms, to_ms=to_ms, page_size=PAGE_SIZE
        )
        found: list[dict[str, object]] = []
        async for one in listed:
            if len(found) == PAGE_SIZE:
                return {"messages": found, "has_more": True}
            found.append(pending_message(one, None))
        return {"messages": found, "has_more": False}


def _page(found: Sequence[Any], search: str, after: str) -> tuple[list[Any], str]:
    """(one page of what matches, behind which name the next one begins; empty: it was the last)."""
    matching: Iterable[Any] = (
        one for one in found if one.name > after and search.lower() in one.name.lower()
    )
    page = list(islice(matching, PAGE_SIZE + 1))
    return page[:PAGE_SIZE], page[PAGE_SIZE - 1].name if len(page) > PAGE_SIZE else ""


def _of_whom(values: list[dict[str, object]] | None, search: str) -> list[dict[str, object]] | None:
    """Those of whose name has `search` in it."""
    if values is None:
        return None
    wanted = search.lower()
    return [one for one in values if wanted in str(one.get("principal", one.get("name"))).lower()]


def _group(group: GroupInfo, dead_letter_count: int) -> dict[str, object]:
    filters = {one.topic: one.filter for one in group.subscriptions}
    return {
        "name": group.name,
        "attempts_max": group.attempts_max,
        "invisible_ms": group.invisible_ms,
        "retry_delay_ms": group.retry_delay_ms,
        "retry_delay_ms_max": group.retry_delay_ms_max,
        "retry_delays_ms": group.retry_delays_ms,
        "retry_jitter_percent": group.retry_jitter_percent,
        "in_flight_max": group.in_flight_max,
        "per_second_max": group.per_second_max,
        "keeps_expired": group.keeps_expired,
        "dead_letters": dead_letter_count,
        "unresolved": sum(lag.unresolved_count for lag in group.lags),
        "leased": sum(lag.leased_count for lag in group.lags),
        "damaged": sum(lag.damaged_count for lag in group.lags),
        "lags": [
            {
                **asdict(lag),
                "filter": str(filters[lag.topic].text) if lag.topic in filters else "*",
            }
            for lag in group.lags
        ],
    }


def pending_message(message: PendingMessage, body: bytes | None) -> dict[str, object]:
    """A message that is scheduled, as JSON has it."""
    return {
        "message_id": str(message.message_id),
        "due_ms": message.due_ms,
        "store_ms": message.store_ms,
        "tags": list(message.meta.tags),
        "keys": list(message.meta.keys),
        "properties": [list(pair) for pair in message.meta.properties],
        "content_type": message.meta.content_type,
        "ordering_key": message.meta.ordering_key,
        "priority": message.meta.priority,
        "body_bytes": message.body_bytes,
        "is_corrupt": message.is_corrupt,
        **shown_body(body),
    }


def shown_body(body: bytes | None) -> dict[str, object]:
    """The beginning of a body: as text where it is UTF-8, else as hexadecimal digits."""
    if body is None:
        return {"body": None, "body_is_text": False, "body_is_cut": False}
    shown = body[:BODY_SHOWN_BYTES_MAX]
    is_cut = len(shown) < len(body)
    text = _find_text(shown, is_cut=is_cut)
    return {
        "body": shown.hex(" ") if text is None else text,
        "body_is_text": text is not None,
        "body_is_cut": is_cut,
    }


def _find_text(shown: bytes, *, is_cut: bool) -> str | None:
    """As UTF-8, if it is that; what is cut may end within a character."""
    for spare in range(_CHARACTER_BYTES_MAX if is_cut else 1):
        try:
            text = shown[: len(shown) - spare].decode()
        except UnicodeDecodeError:
            continue
        return None if "\0" in text else text
    return None
