"""Races of cancel and reschedule against dispatch: the checker finds an answer that is not true."""

import random
from pathlib import Path

from chaos.stored import LogFiles
from hourwheel.client.producer import AsyncProducer
from hourwheel.outcomes import CancelOutcome
from tests.bench import races, subject


async def test_faults_are_found_when_an_answer_is_not_the_logs(tmp_path: Path) -> None:
    async with (
        subject.running(tmp_path / "node") as node,
        AsyncProducer(node.channel) as producer,
    ):
        answers = await races.play(producer, random.Random(3), 400)
        await node.stop()
        log = LogFiles(tmp_path / "node")
        await node.start()
    assert races.find_faults(answers, log) == []
    at = next(at for at, one in enumerate(answers) if not one.is_move)
    swapped = {1: CancelOutcome.ALREADY_RELEASED, 2: CancelOutcome.CANCELLED}
    answers[at] = answers[at]._replace(outcome=swapped[answers[at].outcome])
    (fault,) = races.find_faults(answers, log)
    assert f"sequence={answers[at].message_id.sequence}" in fault
