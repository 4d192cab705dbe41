"""The command: arguments, where orders are from, exit codes. A whole run: tests/cluster."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hourwheel import errors
from hourwheel.errors import HourwheelError
from node.tools.demo import command
from node.tools.demo.command import (
    EXIT_BAD,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    ORDERS_VARIABLE,
    find_orders,
    main,
)
from node.tools.demo.ledger import Failover
from node.tools.demo.player import Player
from node.tools.demo.stage import OneNode, SeveralNodes
from node.tools.demo.trace import build_trace, generate_orders

CSV = (
    "order_id,order_purchase_timestamp,order_approved_at,order_delivered_carrier_date,"
    "order_delivered_customer_date,order_estimated_delivery_date\n"
    "a,2017-10-02 10:00:00,,,,2017-10-18 00:00:00\n"
    "b,2017-10-03 10:00:00,,,,2017-10-18 00:00:00\n"
)


@pytest.fixture(autouse=True)
def _no_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ORDERS_VARIABLE, raising=False)


@pytest.fixture
def orders_file(tmp_path: Path) -> Path:
    path = tmp_path / "orders.csv"
    path.write_text(CSV)
    return path


def test_orders_are_generated_when_there_is_no_file() -> None:
    orders, where = find_orders(None, None, 7)
    assert (len(orders.ids), where) == (4_071, "generated (seed 7)")
    assert len(find_orders(None, 12, 7)[0].ids) == 12


def test_orders_are_those_of_the_file_that_is_asked_for(
    orders_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_orders(orders_file, None, 7)[0].ids == ["a", "b"]
    assert find_orders(orders_file, 1, 7)[0].ids == ["a"]
    monkeypatch.setenv(ORDERS_VARIABLE, str(orders_file))
    assert find_orders(None, None, 7)[1] == f"from {orders_file}"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--orders", "no-such-file"],
        ["--orders", "{folder}"],
        ["--count", "0"],
        ["--seconds", "0.5"],
        ["--seconds", "nan"],
        ["--nodes", "2"],
        ["--nodes", "10"],
        ["--keep", "{folder}"],
    ],
)
def test_exit_code_is_2_when_the_command_line_is_wrong(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "something").touch()
    assert main([each.format(folder=tmp_path) for each in arguments]) == EXIT_USAGE
    assert capsys.readouterr().err.startswith("demo: ")


def test_file_is_named_when_it_has_no_orders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    (tmp_path / "y.csv").write_bytes(b"\xff\xfe")
    for name in ("x.csv", "y.csv"):
        assert main(["--orders", str(tmp_path / name)]) == EXIT_USAGE
        assert name in capsys.readouterr().err


def fails(error: BaseException) -> Callable[..., None]:
    def run(work: Coroutine[Any, Any, Any]) -> None:
        work.close()
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (errors.Unavailable("the node ended"), EXIT_BAD, "the node ended"),
        (asyncio.CancelledError(), EXIT_INTERRUPTED, "interrupted"),
    ],
)
def test_exit_code_tells_how_it_ended(
    error: BaseException,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command.asyncio, "run", fails(error))
    monkeypatch.setattr(command.memory, "settle_garbage_collector", lambda: None)
    assert main(["--count", "3"]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_playing_is_cancelled_when_a_signal_comes(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    async def play(*_: object, **__: object) -> None:
        signal.raise_signal(number)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("node")

    monkeypatch.setattr(command, "play", play)
    trace = build_trace(generate_orders(3, 1), 1)
    with pytest.raises(asyncio.CancelledError):
        await command.play_or_stop(
            trace, Console(), command.make_parser().parse_args([]), is_live=False
        )
    assert ended == ["node"]


class FakeStage:
    """A stage on which nothing runs. `ends` is what `watch` finds."""

    def __init__(self, ends: HourwheelError | None, failover: Failover | None) -> None:
        self._ends, self._failover = ends, failover
        self.is_disturbed = False

    async def watch(self) -> None:
        if self._ends is not None:
            raise self._ends
        await asyncio.Event().wait()

    async def disturb(self, *_: object) -> Failover | None:
        self.is_disturbed = True
        return self._failover


@pytest.mark.parametrize("is_lost", [False, True])
async def test_play_ends_at_once_when_a_node_does(
    is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = []

    async def play(*_: object, **__: object) -> None:
        try:
            if is_lost:
                await asyncio.Event().wait()
        finally:
            is_over.append(True)

    monkeypatch.setattr(command, "play_shown", play)
    failover = Failover("n1", "n2", 2, 0.0, 5.0)
    stage: Any = FakeStage(errors.Unavailable("n3 has ended") if is_lost else None, failover)
    player = Player(build_trace(generate_orders(3, 1), 1), "h:1")
    if is_lost:
        with pytest.raises(errors.Unavailable, match="n3"):
            await command.play_watched(stage, player, Console(), is_live=False)
    else:
        assert await command.play_watched(stage, player, Console(), is_live=False) == failover
        assert stage.is_disturbed
    assert is_over == [True]


def test_stage_has_as_many_nodes_as_are_asked_for(tmp_path: Path) -> None:
    one = command.make_stage(1, None, tmp_path)
    assert isinstance(one, OneNode)
    several = command.make_stage(3, tmp_path / "kept", tmp_path)
    assert isinstance(several, SeveralNodes)
    assert len(several.log_files) == 3
    assert several.data_directory == tmp_path / "kept" / "node-1"


def test_end_of_the_log_is_shown_when_there_is_one(tmp_path: Path) -> None:
    assert command.last_lines(tmp_path / "none") == ""
    (tmp_path / "log").write_text("".join(f"{number}\n" for number in range(50)))
    assert command.last_lines(tmp_path / "log").split() == [str(number) for number in range(30, 50)]
