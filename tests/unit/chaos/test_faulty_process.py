import os
import time
from pathlib import Path

import pytest

from chaos.faulty_process import Plan, WrongClock
from hourwheel.clock import SystemClock


def test_wall_clock_is_wrong_when_and_only_while_the_file_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 5_000_000_000)
    file, clock = tmp_path / "offset", SystemClock()
    WrongClock(file)
    assert clock.wall_ms() == 5_000
    file.write_text("-1500")
    assert clock.wall_ms() == 3_500
    file.unlink()
    assert clock.wall_ms() == 5_000


def test_call_fails_when_it_is_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    Plan(["fsync"], 2, 3, "EIO")
    os.fsync(0)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            os.fsync(0)
    os.fsync(0)
