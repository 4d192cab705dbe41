import asyncio
import signal
from pathlib import Path

import pytest

from hourwheel import errors
from replication.control.launcher import ControlProcess
from tests.support.control_cluster import ControlCluster
from tests.support.eventually import until


def process(tmp_path: Path, **limits: float) -> ControlProcess:
    config = ControlCluster(tmp_path)["n1"].process.config
    return ControlProcess(config, log_file=tmp_path / "log", **limits)


async def test_process_starts_and_stops(tmp_path: Path) -> None:
    control = process(tmp_path)
    assert not control.is_running
    await control.start()
    assert control.is_running
    assert control.pid > 0
    with pytest.raises(errors.InvariantViolated, match="already"):
        await control.start()
    await control.kill()
    assert control.process.returncode == -signal.SIGKILL
    assert await control.stop() == -signal.SIGKILL
    assert not control.is_running


async def test_process_that_was_not_started_has_no_number(tmp_path: Path) -> None:
    with pytest.raises(errors.InvariantViolated):
        _ = process(tmp_path).pid


async def test_process_that_hears_nothing_is_killed(tmp_path: Path) -> None:
    control = process(tmp_path, stop_s=0.01)
    await control.start()
    control.process.send_signal(signal.SIGSTOP)
    state = Path(f"/proc/{control.pid}/stat")
    await until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T")
    async with asyncio.timeout(30):
        assert await control.stop() == -signal.SIGKILL
