"""Consume queues against lists, through trims, drops, checkpoints and crashes."""

from dataclasses import dataclass, field
from random import Random

import numpy as np
from hypothesis import given

from hourwheel.internal.v1.state_pb2 import QueueState
from storage.files.file_header import Identity
from storage.queues.consume_queues import ConsumeQueues
from storage.views.unit import NO_UNITS, Units
from tests.support.checkpointed_world import CheckpointedWorld, steps_of
from tests.support.units import make_units

IDENTITY = Identity(bytes(range(16)), 3)
CHUNK_ENTRIES = 10
TOPIC_QUEUES = (0x100, 0x101, 0x200)


@dataclass
class Queue:
    """Entries from position 0 on, trimmed ones included."""

    start: int = 0
    units: Units = field(default_factory=lambda: NO_UNITS)


class World(CheckpointedWorld[ConsumeQueues, dict[int, Queue]]):
    def __init__(self) -> None:
        self.now_ms = 0
        super().__init__({}, [])

    def open(self, state: list[QueueState]) -> ConsumeQueues:
        return ConsumeQueues.open(
            self.disk,
            "queues",
            IDENTITY,
            state,
            chunk_entries=CHUNK_ENTRIES,
            mapped_chunks_max=5,
        )

    def state(self) -> list[QueueState]:
        return self.view.state()

    def compare(self) -> None:
        assert self.view.topic_queues() == sorted(self.model)
        for topic_queue, expected in self.model.items():
            queue = self.view.get(topic_queue)
            assert queue.start_position == expected.start
            assert queue.end_position == len(expected.units)
            at = expected.start
            while at < queue.end_position:
                units = queue.read(at, 7)
                assert 0 < len(units) <= 7
                assert (units == expected.units[at : at + len(units)]).all()
                at += len(units)
            self.compare_visible(topic_queue)
            self.compare_references(topic_queue)

    def compare_visible(self, topic_queue: int) -> None:
        queue, expected = self.view.get(topic_queue), self.model[topic_queue]
        visible = queue.visible_end(self.now_ms)
        assert expected.start <= visible <= queue.end_position
        gates = np.maximum(expected.units["due_ms"], expected.units["store_ms"])
        assert (gates[expected.start : visible] <= self.now_ms).all()
        if visible < queue.end_position:
            assert gates[visible] > self.now_ms
            assert queue.next_gate_ms() == gates[visible]
        else:
            assert queue.next_gate_ms() is None

    def compare_references(self, topic_queue: int) -> None:
        offset, delay_log = self.view.get(topic_queue).references()
        expected = self.model[topic_queue]
        for unit in expected.units[expected.start :]:
            if unit["dlog_id"] == 0:
                assert offset is not None
                assert offset <= unit["position"]
            else:
                assert delay_log is not None
                assert delay_log <= unit["dlog_id"]

    def append(self, seed: int) -> None:
        rng = Random(seed)
        count = rng.choice((1, 2, 9, CHUNK_ENTRIES, 33, 104))
        units = make_units(seed, count, due_ms=self.now_ms)
        units["due_ms"] += [rng.randint(-9, 9) for _ in range(count)]
        units["dlog_id"] = [rng.choice((0, 1, 5)) for _ in range(count)]
        units["position"] = [rng.randrange(1 << 40) for _ in range(count)]
        topic_queue = rng.choice(TOPIC_QUEUES)
        queue = self.model.setdefault(topic_queue, Queue())
        assert self.view.get(topic_queue).append(units) == len(queue.units)
        queue.units = np.concatenate((queue.units, units))

    def pass_time(self, seed: int) -> None:
        self.now_ms += seed % 20

    def trim(self, seed: int) -> None:
        rng = Random(seed)
        if self.model:
            topic_queue = rng.choice(sorted(self.model))
            queue, expected = self.view.get(topic_queue), self.model[topic_queue]
            position = rng.randint(expected.start, len(expected.units))
            queue.trim_to(position)
            expected.start = position

    def trim_old(self, seed: int) -> None:
        """What a TRIM record does."""
        retain_from_ms = self.now_ms - seed % 30
        for topic_queue, expected in self.model.items():
            queue = self.view.get(topic_queue)
            position = queue.trim_position_for(retain_from_ms)
            full = [
                at
                for at in range(expected.start, len(expected.units) + 1)
                if at % CHUNK_ENTRIES == 0
            ]
            gates = np.maximum(expected.units["due_ms"], expected.units["store_ms"])
            chunk = expected.start - expected.start % CHUNK_ENTRIES
            good = [at for at in full if (gates[chunk:at] < retain_from_ms).all()]
            assert position == max([expected.start, *good])
            queue.trim_to(position)
            expected.start = position

    def drop(self, seed: int) -> None:
        if seed % 8 == 0:
            topic_id = 1 + seed // 8 % 2
            if any(topic_queue >> 8 == topic_id for topic_queue in self.model):
                self.finish(seed)  # so that the number may be used again here
                self.view.drop_topic(topic_id)
                self.model = {key: each for key, each in self.model.items() if key >> 8 != topic_id}
                self.checkpoint(seed)

    def unmap(self, seed: int) -> None:
        self.view.close()


@given(steps_of("append", "append", "append", "pass_time", "trim", "trim_old", "drop", "unmap"))
def test_consume_queues_when_checkpointed_and_crashed(steps: list[tuple[str, int]]) -> None:
    World().run(steps)
