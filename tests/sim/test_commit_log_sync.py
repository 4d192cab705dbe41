"""The asynchronous mode of the commit log: written first, durable a little later."""

from random import Random

import pytest

from hourwheel import errors
from storage.log.commit_log import CommitLog
from tests.sim.disk import SimulatedDisk
from tests.support.log_world import crash_everywhere, fill, flush, open_log, publish, recovered


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def ends(log: CommitLog) -> tuple[int, int, int, int]:
    log.check()
    return log.start_offset, log.durable_end_offset, log.flushed_end_offset, log.end_offset


def test_sync_when_writes_were_not_durable(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    assert log.begin_sync() is None
    raw = fill(log, 3)
    assert log.begin_sync() is None
    publish(log)
    flush(log, durable=False)
    sync = log.begin_sync()
    assert sync is not None
    with pytest.raises(errors.InvariantViolated):
        log.finish_sync(sync)
    publish(log)
    flush(log, durable=False)
    sync.run()
    log.finish_sync(sync)
    assert ends(log) == (0, len(raw) + 200, len(raw) + 400, len(raw) + 400)
    disk.crash(Random(1))
    assert recovered(disk)[1].startswith(raw)
    assert len(recovered(disk)[1]) >= len(raw) + 200


def test_sync_when_a_durable_write_comes_first(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    publish(log)
    flush(log, durable=False)
    sync = log.begin_sync()
    assert sync is not None
    publish(log)
    flush(log)
    sync.run()
    log.finish_sync(sync)
    assert ends(log) == (0, 400, 400, 400)


def test_sync_when_power_is_cut_leaves_what_was_durable() -> None:
    def use(disk: SimulatedDisk) -> None:
        durable[:] = [0]
        log = open_log(disk)
        for count in range(1, 40):
            publish(log)
            flush(log, durable=False)
            if count % 3 == 0:
                sync = log.begin_sync()
                assert sync is not None
                sync.run()
                log.finish_sync(sync)
                durable[:] = [log.durable_end_offset]

    def check(disk: SimulatedDisk, rng: Random) -> None:
        assert len(recovered(disk)[1]) >= durable[0]

    durable = [0]
    crash_everywhere(use, check, seeds=range(2))
