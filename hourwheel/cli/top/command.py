"""`hourwheel top`: options, and looking again and again."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Final, NoReturn

import typer
from rich.live import Live

from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.options import Json, Server, connect, duration_option
from hourwheel.cli.output import Output, run
from hourwheel.cli.top.look import Look, Watch
from hourwheel.cli.top.reading import read
from hourwheel.cli.top.screen import draw
from hourwheel.errors import HourwheelError
from hourwheel.transport.channel import SERVER_DEFAULT

_EVERY_MS_MIN: Final = 100


def top(
    every_ms: Annotated[
        int,
        typer.Option(
            "--every", parser=duration_option, metavar="DURATION", help="How often to look again."
        ),
    ] = "2s",  # type: ignore[assignment]  # typer parses defaults, too
    group_rows: Annotated[
        int, typer.Option("--groups", min=0, max=1_000, help="Show at most so many groups.")
    ] = 10,
    *,
    is_once: Annotated[
        bool, typer.Option("--once", help="Look twice, for the rates, show that, and end.")
    ] = False,
    server: Server = SERVER_DEFAULT,
    is_json: Json = False,
) -> None:
    """Show the cluster as it is now, again and again, until Ctrl-C.

    Nodes, master, rates, lateness, what is pending, and the groups most behind. Any node will do,
    also without a master; then it says why there is none.
    """
    if every_ms < _EVERY_MS_MIN:
        raise typer.BadParameter(f"look every {_EVERY_MS_MIN} ms at most")
    output = Output(is_json=is_json)

    async def command() -> ExitCode:
        async with connect(server) as channel, Watch(channel, server) as watch:
            if is_once:
                return await _show_once(output, watch, every_ms, group_rows)
            try:
                await _show_on(output, watch, every_ms, group_rows)
            except asyncio.CancelledError:  # Ctrl-C is how it ends
                return ExitCode.OK

    run(output, command())


async def _show_once(output: Output, watch: Watch, every_ms: int, group_rows: int) -> ExitCode:
    """Raises HourwheelError where no node answers."""
    before = await watch.look()
    if not before.statuses:
        raise _reason(before)
    await asyncio.sleep(every_ms / 1_000)
    look = await watch.look()
    if not look.statuses:
        raise _reason(look)
    _show(output, look, before, group_rows)
    return ExitCode.OK


def _reason(look: Look) -> HourwheelError:
    return next(iter(look.silent.values()))


async def _show_on(output: Output, watch: Watch, every_ms: int, group_rows: int) -> NoReturn:
    before: Look | None = None
    if output.is_json or not output.console.is_terminal:
        while True:
            look = await watch.look()
            _show(output, look, before, group_rows)
            before = look
            await asyncio.sleep(every_ms / 1_000)
    with Live(console=output.console, screen=True, auto_refresh=False) as live, _resized(live):
        while True:
            look = await watch.look()
            live.update(draw(read(look, before, group_rows)), refresh=True)
            before = look
            await asyncio.sleep(every_ms / 1_000)


def _show(output: Output, look: Look, before: Look | None, group_rows: int) -> None:
    reading = read(look, before, group_rows)
    if output.is_json:
        output.json(asdict(reading))
    else:
        output.console.print(draw(reading))
    sys.stdout.flush()


@contextmanager
def _resized(live: Live) -> Iterator[None]:
    """Draw again at once when the window has another size."""
    number = getattr(signal, "SIGWINCH", None)
    if number is None:  # not on this system: the next look draws again
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(number, live.refresh)
    try:
        yield
    finally:
        loop.remove_signal_handler(number)
