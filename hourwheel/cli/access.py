"""How the command line knows the nodes, and shows who it is: options before the command.

Secrets are in files: options are seen by all users of the machine.
"""

from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from hourwheel.errors import InvalidArgument
from hourwheel.transport.access import PLAIN, Access
from hourwheel.transport.access_files import AccessFiles

CURRENT: Final[ContextVar[Access]] = ContextVar("CURRENT", default=PLAIN)
"""Set by the options before the command."""

_NO_FILES: Final = AccessFiles()
FILES: Final[ContextVar[AccessFiles]] = ContextVar("FILES", default=_NO_FILES)
"""Likewise: what they name."""

_File: TypeAlias = Path | None

TlsCa: TypeAlias = Annotated[
    _File,
    typer.Option(
        "--tls-ca",
        envvar="HOURWHEEL_TLS_CA",
        metavar="FILE",
        help="Who signs the nodes' certificates; `system`: an authority that everybody trusts.",
    ),
]
TlsCert: TypeAlias = Annotated[
    _File,
    typer.Option(
        "--tls-cert", envvar="HOURWHEEL_TLS_CERT", metavar="FILE", help="Your own certificate."
    ),
]
TlsKey: TypeAlias = Annotated[
    _File,
    typer.Option("--tls-key", envvar="HOURWHEEL_TLS_KEY", metavar="FILE", help="Its private key."),
]
TokenFile: TypeAlias = Annotated[
    _File,
    typer.Option(
        "--token-file",
        envvar="HOURWHEEL_TOKEN_FILE",
        metavar="FILE",
        help="A signed token that says who you are.",
    ),
]
LoginFile: TypeAlias = Annotated[
    _File,
    typer.Option(
        "--login-file",
        envvar="HOURWHEEL_LOGIN_FILE",
        metavar="FILE",
        help="A user's name, a colon, and the secret.",
    ),
]


def set_access(*, ca: _File, cert: _File, key: _File, token_file: _File, login_file: _File) -> None:
    """By the options.

    Raises:
        BadParameter: they do not go together, or a file cannot be read.
    """
    files = AccessFiles(
        tls_ca=_path(ca),
        tls_cert=_path(cert),
        tls_key=_path(key),
        token_file=_path(token_file),
        login_file=_path(login_file),
    )
    try:
        access = files.read()
    except InvalidArgument as error:
        raise typer.BadParameter(error.message) from None
    CURRENT.set(access)
    FILES.set(files)


def _path(file: _File) -> str:
    return "" if file is None else str(file)


def current_access() -> Access:
    """As the options of the command that runs say."""
    return CURRENT.get()


def current_files() -> AccessFiles:
    """What these options name, for programs that read it themselves."""
    return FILES.get()


def access_options() -> dict[str, Any]:
    """The same, as producers and consumers take it."""
    access = current_access()
    return {"tls": access.tls, "token": access.token, "user": access.user}
