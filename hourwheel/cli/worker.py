"""`hourwheel worker`."""

import asyncio
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Final

import typer

from hourwheel.cli.access import current_files
from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.options import duration_option, from_above, servers_option
from hourwheel.cli.output import LogFormatOption, Output, run
from hourwheel.workers.command import WorkerOptions, run_worker
from hourwheel.workers.logs import LogFormat, configure_logs
from hourwheel.workers.program import Program
from hourwheel.workers.reload import Reloader
from hourwheel.workers.worker import STOP_MS

_RELOADED: Final = "HOURWHEEL_WORKER_RELOADED"
"""A variable of the environment of a worker that --reload has begun."""


def as_celery_has_it(given: str | None) -> None:
    """Raises BadParameter: the app is named otherwise here, and processes are counted otherwise."""
    if given is None:
        return
    if given.isdecimal():
        raise typer.BadParameter(
            f"write --processes {given}; how many messages of a handler are handled at one time in "
            f"each is said there: @app.handler(..., concurrency=16)"
        )
    app = given if ":" in given else f"{given.replace('.py', '')}:app"
    raise typer.BadParameter(
        f"name the app without an option: hourwheel worker {app} --processes 4"
    )


def worker(
    target: Annotated[str, typer.Argument(help="Where the app is, as module:app.")],
    process_count: Annotated[
        int, typer.Option("--processes", "-p", min=1, max=256, help="Processes for handlers.")
    ] = 1,
    stop_ms: Annotated[
        int,
        typer.Option(
            "--stop-within",
            parser=duration_option,
            metavar="DURATION",
            help="How long handlers may take to end.",
            show_default=f"{STOP_MS // 1_000}s",
        ),
    ] = f"{STOP_MS}ms",  # type: ignore[assignment]  # typer parses defaults, too
    health: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Serve /healthz and /metrics here.")
    ] = "",
    log_format: LogFormatOption = LogFormat.TEXT,
    server: Annotated[
        str | None,
        typer.Option(
            envvar="HOURWHEEL_SERVER",
            parser=servers_option,
            callback=from_above,
            metavar="HOST:PORT,...",
            help="A node, or several with commas, in place of the app's.",
            show_default="the app's",
        ),
    ] = None,
    *,
    is_reloading: Annotated[
        bool, typer.Option("--reload", help="For development: begin anew when a file changes.")
    ] = False,
    _of_celery: Annotated[
        str | None,
        typer.Option(
            *("-A", "--app", "-c", "--concurrency"),
            help="Says how the app is named here, and how processes are counted.",
            hidden=True,
            is_eager=True,
            callback=as_celery_has_it,
        ),
    ] = None,
) -> None:
    """Run the handlers of an app, until SIGTERM or Ctrl-C."""
    configure_logs(log_format)
    output = Output(is_json=False)
    if is_reloading:
        raise typer.Exit(_run_and_reload(sys.argv, stop_ms))
    is_reloaded = os.environ.pop(_RELOADED, "") != ""
    if is_reloaded:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path.insert(0, str(Path.cwd()))
    program = Program(target, server or "", current_files(), log_format)
    options = WorkerOptions(
        program,
        process_count,
        stop_ms,
        _address(health),
        ends_by_interrupt=not is_reloaded,
    )
    run(output, _serve(options))


async def _serve(options: WorkerOptions) -> None:
    app = await asyncio.to_thread(options.program.load)
    await run_worker(app, options)


def _address(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:  # noqa: PLR2004
        raise typer.BadParameter("write HOST:PORT, such as 127.0.0.1:9100")
    return host.strip("[]") or "127.0.0.1", int(port)


def _run_and_reload(arguments: list[str], stop_ms: int) -> int:
    try:
        watchfiles = import_module("watchfiles")
    except ImportError:
        sys.stderr.write("--reload needs watchfiles: pip install 'hourwheel[workers]'\n")
        raise typer.Exit(ExitCode.UNAVAILABLE) from None
    again = [
        *(sys.executable, "-m", "hourwheel.cli"),
        *(one for one in arguments[1:] if one != "--reload"),
    ]
    os.environ[_RELOADED] = "1"

    async def reload() -> int:
        changes = watchfiles.awatch(str(Path.cwd()), watch_filter=watchfiles.PythonFilter())
        return await Reloader(again, stop_ms).run(changes)

    return asyncio.run(reload())
