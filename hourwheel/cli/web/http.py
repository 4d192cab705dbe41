"""`hourwheel http`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from hourwheel.cli.access import current_access
from hourwheel.cli.options import Server
from hourwheel.cli.output import LogFormatOption, Output, run
from hourwheel.cli.web.extras import needed
from hourwheel.errors import ConfigError
from hourwheel.transport.channel import SERVER_DEFAULT
from hourwheel.workers.logs import LogFormat, configure_logs


def http(
    server: Server = SERVER_DEFAULT,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="TOML, with a section \\[http].")
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Listen here, whatever the file says.")
    ] = "",
    health: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Serve /healthz and /metrics here, too.")
    ] = "",
    log_format: LogFormatOption = LogFormat.TEXT,
) -> None:
    """Serve the HTTP API: JSON calls, passed on to the nodes with their callers' credentials."""
    settings = needed("hourwheel.gateway.settings", "http")
    command = needed("hourwheel.gateway.command", "http")
    configure_logs(log_format)
    paths = [] if config is None else [str(config)]

    def read() -> tuple[Any, list[str]]:
        return settings.read_settings(config, listen), paths

    try:
        read()
    except ConfigError as error:
        raise typer.BadParameter(error.message) from None
    try:
        probes = settings.split_address(health) if health else None
    except ValueError as error:
        raise typer.BadParameter(f"--health: {error}") from None
    run(Output(is_json=False), command.run_gateway(server, read, current_access(), probes))
