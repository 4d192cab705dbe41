"""What the log means for ordered groups, by a naive model: see `chaos.log_model`."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from chaos.log_parts.entries import Entry
from hourwheel.filter_language.evaluate import evaluate
from hourwheel.filter_language.text import FilterExpression, parse
from hourwheel.formats.meta import decode


def is_wanted(meta_raw: bytes, filters: Collection[FilterExpression]) -> bool:
    """Whether a message matches all of some filters."""
    meta = decode(meta_raw)
    return all(evaluate(parse(one), meta.tags, dict(meta.properties)) is True for one in filters)


def metas_at(metas: Mapping[int, bytes], entries: Sequence[Entry]) -> Callable[[int], bytes]:
    """Position -> metadata of the message that stands there."""
    return lambda at: metas.get(entries[at].sequence, b"")


@dataclass
class Turns:
    """Who is next of each ordering key: the first one that is not resolved."""

    floors: dict[tuple[int, int], int] = field(default_factory=dict)
    """(group, queue) -> all before it is resolved, or was let go by retention."""

    def overtaken(
        self,
        place: tuple[int, int],
        ended: list[int],
        resolved: Collection[int],
        start: int,
        meta_at: Callable[[int], bytes],
        filters: Collection[FilterExpression],
    ) -> Iterator[tuple[int, int]]:
        """(position, an earlier unresolved one of its key) of what ended out of its turn.

        Args:
            place: group and queue.
            ended: positions that were acknowledged, given up or given back by this.
            resolved: all that are resolved now; it only grows.
            start: what is before it was let go by retention.
            meta_at: the metadata of the message at a position.
            filters: all that the group ever had; what one of them does not take blocks none.
        """
        floor = max(start, self.floors.get(place, 0))
        while floor in resolved:
            floor += 1
        self.floors[place] = floor
        keys = {at: decode(meta_at(at)).ordering_key for at in ended if at > floor}
        keys = {at: key for at, key in keys.items() if key}
        first: dict[str, int] = {}
        for at in range(floor, max(keys, default=0)):
            key = "" if at in resolved else decode(meta_at(at)).ordering_key
            if key in keys.values() and is_wanted(meta_at(at), filters):
                first.setdefault(key, at)
        for at, key in keys.items():
            if first.get(key, at) < at:
                yield at, first[key]
