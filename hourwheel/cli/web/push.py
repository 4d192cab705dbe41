"""`hourwheel push`."""

from pathlib import Path
from typing import Annotated

import typer

from hourwheel.cli.access import current_access
from hourwheel.cli.options import Server, duration_option
from hourwheel.cli.output import LogFormatOption, Output, run
from hourwheel.cli.web.extras import needed
from hourwheel.errors import ConfigError
from hourwheel.transport.channel import SERVER_DEFAULT
from hourwheel.workers.logs import LogFormat, configure_logs


def push(
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="TOML, with \\[\\[subscriptions]].")
    ],
    server: Server = SERVER_DEFAULT,
    stop_ms: Annotated[
        int,
        typer.Option(
            "--stop-within",
            parser=duration_option,
            metavar="DURATION",
            help="How long POSTs may take to end.",
            show_default="25s",
        ),
    ] = "25s",  # type: ignore[assignment]  # typer parses defaults, too
    health: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Serve /healthz and /metrics here.")
    ] = "",
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Deliver messages of groups by POST to webhooks, until SIGTERM or Ctrl-C."""
    settings = needed("hourwheel.webhooks.settings", "http")
    command = needed("hourwheel.webhooks.command", "http")
    configure_logs(log_format)
    try:
        settings.read_push_settings(config)
    except ConfigError as error:
        raise typer.BadParameter(error.message) from None
    try:
        probes = settings.split_address(health) if health else None
    except ValueError as error:
        raise typer.BadParameter(f"--health: {error}") from None
    options = command.PushOptions(stop_ms, probes)
    run(Output(is_json=False), command.run_push(server, config, current_access(), options))
