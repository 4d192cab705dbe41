"""Damaged messages for operators: listed, and given up. A part of EnginePort."""

from collections.abc import Iterable, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - as its module names it
from typing import Final

from hourwheel import errors
from hourwheel.formats.message_id import MessageId
from hourwheel.types import NO_GROUP, NO_TOPIC, Epoch, GroupId, SequenceNumber, TopicId, topic_of
from node.contracts.damaged_messages import DamagedInfo, DamagedPage
from node.delivery.damaged import DamagedBytes, DamagedEntry
from node.repair.damage_control import DamageControl
from node.replica.mastership import Mastership

_TOKEN: Final = Struct("<IQ")
"""Epoch and serial of the last entry: the next mastership knows other entries."""


class DamageService:
    """See EnginePort.list_damaged and discard_damaged."""

    def __init__(self, mastership: Mastership, damage: DamageControl) -> None:
        """Of what this mastership cannot read."""
        self._shard, self._epoch, self._damage = mastership.shard, mastership.epoch, damage

    async def list_damaged(
        self, group: str, topic: str, token: bytes, *, count_max: int
    ) -> DamagedPage:
        """See EnginePort."""
        found = self._damage.listed(*self._ids(group, topic), self._serial_of(token))
        page = found[:count_max]
        next_token = b""
        if len(found) > len(page):
            next_token = _TOKEN.pack(self._epoch, page[-1][1].serial)
        return DamagedPage(self._infos(page), next_token)

    async def discard_damaged(
        self, group: str, topic: str, ids: Sequence[MessageId] | None, *, count_max: int
    ) -> tuple[list[DamagedInfo], int]:
        """See EnginePort."""
        control = self._damage
        requested = self._ids(group, topic)
        chosen = control.listed(*requested)
        if ids is not None:
            named = {one.sequence: one for one in ids}
            chosen = [one for one in chosen if self._id_of(one[1]) in named.values()]
        chosen = chosen[:count_max]
        infos = dict(zip((one.serial for _, one in chosen), self._infos(chosen), strict=True))
        gone = await control.discard([one for _, one in chosen])
        return [infos[one.serial] for one in gone], len(control.listed(*requested))

    def _ids(self, group: str, topic: str) -> tuple[GroupId, TopicId]:
        """Numbers of a group and a topic; 0 where none is named. Raises UnknownGroup, -Topic."""
        catalog = self._shard.views.catalog
        group_id = catalog.get_group(group).group_id if group else NO_GROUP
        return group_id, catalog.get_topic(topic).topic_id if topic else NO_TOPIC

    def _serial_of(self, token: bytes) -> int:
        if not token:
            return 0
        try:
            epoch, serial = _TOKEN.unpack(token)
        except StructError:
            raise errors.InvalidArgument("no page token", field="page_token") from None
        if epoch != self._epoch:
            why = "the master has changed: begin again"
            raise errors.InvalidArgument(why, field="page_token")
        return int(serial)

    def _id_of(self, entry: DamagedEntry) -> MessageId:
        """With the due time that was asked for: a retry's unit has a later one."""
        views, sequence = self._shard.views, entry.unit["sequence"]
        due_ms, _ = views.sequences.read_many(sequence)
        epoch = Epoch(int(views.epochs_of(sequence)[0]))
        return MessageId(
            self._shard.shard_id, epoch, SequenceNumber(int(sequence[0])), int(due_ms[0])
        )

    def _infos(self, found: Iterable[tuple[DamagedBytes, DamagedEntry]]) -> list[DamagedInfo]:
        catalog = self._shard.views.catalog
        infos = []
        for at, one in found:
            group = catalog.find_group_by_id(one.group_queue.group_id)
            origin = catalog.find_topic_by_id(TopicId(int(one.unit["origin_topic"][0])))
            stands_in = catalog.find_topic_by_id(topic_of(one.group_queue.topic_queue))
            message_id = self._id_of(one)
            infos.append(
                DamagedInfo(
                    message_id=message_id,
                    group="" if group is None else group.name,
                    topic="" if origin is None else origin.name,
                    stands_in="" if stands_in is None else stands_in.name,
                    due_ms=message_id.due_ms,
                    attempt=max(1, int(one.unit["attempt"][0])),
                    body_bytes=int(one.unit["body_len"][0]),
                    place=at.error.message,
                    found_ms=one.found_ms,
                    tries=at.tries,
                )
            )
        return infos
