"""Cancels and reschedules that race with the dispatch of their messages: each answer is true.

A try names a message within some milliseconds of its due time, so that about half of them come too
late. When all are answered the node is stopped, and its log is read by the naive reading of
`chaos.log_model`: what it says of the very row must be what the caller was told, and what it says
of the message must agree. `python -m tests.bench races` makes a million tries.
"""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from chaos.log_model import LogModel
from chaos.stored import LogFiles
from hourwheel.client.batch_builder import Columns
from hourwheel.client.producer import AsyncProducer
from hourwheel.clock import SystemClock
from hourwheel.formats.message_id import MessageId
from hourwheel.formats.record_batch import Kind
from hourwheel.outcomes import CancelOutcome, RescheduleOutcome
from tests.bench import load, subject
from tests.bench.results import Report
from tests.bench.sizes import Size

ROUND: Final = 4_000
_TOGETHER: Final = 20
_CALLERS: Final = 10
_FIRST_DUE_MS: Final = 250
"""After publishing: the answer must be here by then."""
_SPREAD_MS: Final = 400
_AROUND_MS: Final = 14
"""A try begins so long before its messages are due, or after."""
_TOPIC: Final = "races"


class Answer(NamedTuple):
    """What became of one try."""

    message_id: MessageId
    is_move: bool
    outcome: int
    """`RescheduleOutcome` of a move, else `CancelOutcome`."""
    due_ms: int
    """Of a move: where the message was said to be due; else 0."""


async def run(size: Size, folder: Path) -> Report:
    """As many tries as the size says; raises where an answer is wrong."""
    tries = size.pick(2_000, 50_000, 1_000_000)
    answers: list[Answer] = []
    async with (
        subject.running(folder / "races") as node,
        AsyncProducer(node.channel) as producer,
    ):
        with subject.frozen_garbage(), node.span() as span:
            chooser = random.Random(load.SEED)
            while len(answers) < tries:
                answers += await play(producer, chooser, min(ROUND, tries))
        await node.stop()
        faults = find_faults(answers, LogFiles(folder / "races"))
        await node.start()
    if faults:
        raise RuntimeError(f"{len(faults)} answers are wrong: {faults[:5]}")
    kinds = Counter(name_of(one) for one in answers)
    told = ", ".join(f"{count:,} {name}" for name, count in sorted(kinds.items()))
    report = Report(
        [
            f"{len(answers):,} tries within {_AROUND_MS} ms of the due time, {_TOGETHER} a call",
            f"answers: {told}",
            "each is compared with the log, record by record: all are true",
        ]
    )
    report.add("tries", len(answers) / span.seconds, "tries/s", None, span.cores)
    return report


def name_of(answer: Answer) -> str:
    """For people."""
    if answer.is_move:
        return f"moves {RescheduleOutcome(answer.outcome).name}"
    return f"cancels {CancelOutcome(answer.outcome).name}"


async def play(producer: AsyncProducer, chooser: random.Random, count: int) -> list[Answer]:
    """Publish some messages and try each once; half of the tries are moves."""
    clock, answers = SystemClock(), list[Answer]()
    begin_ms = int(clock.wall_ms()) + _FIRST_DUE_MS
    due_ms = sorted(begin_ms + chooser.randrange(_SPREAD_MS) for _ in range(count))
    published = await producer.publish_batch(_TOPIC, Columns(bodies=[b"x"] * count, due_ms=due_ms))
    ids = list(published)
    chunks = [ids[at : at + _TOGETHER] for at in range(0, count, _TOGETHER)]
    waiting = iter(chunks)

    async def call() -> None:
        for chunk in waiting:
            is_move = chooser.random() < 0.5
            at_ms = chunk[0].due_ms + chooser.randint(-_AROUND_MS, _AROUND_MS)
            await asyncio.sleep(max(0.0, at_ms - clock.wall_ms()) / 1_000)
            if is_move:
                moved = await producer.reschedule_many(
                    chunk, delay_ms=chooser.choice((0, 5, 20, 3_600_000))
                )
                answers.extend(
                    Answer(one, True, found.outcome, found.due_ms or 0)
                    for one, found in zip(chunk, moved, strict=True)
                )
            else:
                outcomes = await producer.cancel_many(chunk)
                answers.extend(
                    Answer(one, False, outcome, 0)
                    for one, outcome in zip(chunk, outcomes, strict=True)
                )

    async with asyncio.TaskGroup() as group:
        for _ in range(_CALLERS):
            group.create_task(call())
    return answers


def find_faults(answers: list[Answer], log: LogFiles) -> list[str]:
    """What is wrong with the answers, by the log of a node that does not run."""
    model, recorded = LogModel(), dict[int, tuple[bool, int, int]]()
    end = log.segments[-1].end_offset
    for batch in log.scan(0, end):
        model.read(batch)
        result = model.results.pop(batch.header.offset)
        if batch.header.kind == Kind.CANCEL:
            for sequence, outcome in zip(batch.rows["sequence"].tolist(), result, strict=True):
                recorded[sequence] = (False, int(outcome), 0)
        elif batch.header.kind == Kind.RESCHEDULE:
            for sequence, row in zip(batch.rows["sequence"].tolist(), result, strict=True):
                recorded[sequence] = (True, int(row[0]), row[1])
    model.check()
    found = []
    for one in answers:
        said = (one.is_move, int(one.outcome), one.due_ms)
        if recorded.get(one.message_id.sequence) != said:
            found.append(f"{one}: the log says {recorded.get(one.message_id.sequence)}")
        elif not _agrees(one, model):
            found.append(f"{one}: what became of the message is something else")
    return found


def _agrees(one: Answer, model: LogModel) -> bool:
    sequence = one.message_id.sequence
    is_released, is_cancelled = sequence in model.released, sequence in model.cancelled
    if one.is_move and one.outcome == RescheduleOutcome.RESCHEDULED:
        is_waiting = (sequence, 0) in model.waiting
        return model.moved[sequence][0] == one.due_ms and is_released != is_waiting
    if not one.is_move and one.outcome == CancelOutcome.CANCELLED:
        return is_cancelled and not is_released
    return is_released and not is_cancelled
