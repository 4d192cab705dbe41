"""The configuration of a gateway: TOML with one section, `[http]`.

    [http]
    listen = "127.0.0.1:7480"
    cert = "/etc/hourwheel/http.pem"
    key = "/etc/hourwheel/http.key"

Unknown keys are refused. How the gateway reaches the nodes, the options of the command line say.
"""

import ipaddress
import tomllib
from pathlib import Path
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hourwheel.errors import ConfigError

LISTEN: Final = "127.0.0.1:7480"
FILE_BYTES_MAX: Final = 1024 * 1024


class CertificateSection(BaseModel):
    """A client certificate's principal: files with what is passed on to the nodes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    login_file: str = ""
    """name:secret of a user; or"""
    token_file: str = ""
    """a signed token."""

    @model_validator(mode="after")
    def check_one(self) -> Self:
        """One of the two."""
        if bool(self.login_file) == bool(self.token_file):
            raise ValueError("either login_file or token_file is needed")
        return self


class HttpSection(BaseModel):
    """Section `[http]`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    listen: str = LISTEN
    """host:port; port 0: one that is free."""
    cert: str = ""
    """The gateway's certificate, PEM, and"""
    key: str = ""
    """its key. Without them callers are served in the clear."""
    client_ca: str = ""
    """Who signs the certificates of callers: each needs one then."""
    certificates: dict[str, CertificateSection] = Field(default={})
    """The name in such a certificate -> the principal that it stands for."""
    behind_proxy: bool = False
    """Listen beyond loopback in the clear: what is in front of it speaks TLS."""
    hosts: tuple[str, ...] = Field(default=(), strict=False)
    """Names by which callers without credentials may call it, beside addresses and localhost."""
    connections: int = Field(default=256, ge=1, le=65_536)
    head_bytes: int = Field(default=16_384, ge=1_024, le=1_048_576)
    body_bytes: int = Field(default=8_388_608, ge=1_024, le=16_777_216)
    """Of one request, and"""
    bodies_bytes: int = Field(default=67_108_864, ge=1_024, le=1 << 34)
    """of all that are being read or answered."""
    head_ms: int = Field(default=10_000, ge=100, le=600_000)
    """How long a head may take, the TLS handshake may, and a connection may be idle."""
    body_ms: int = Field(default=30_000, ge=100, le=600_000)
    answer_ms: int = Field(default=30_000, ge=100, le=600_000)
    """How long a caller may take to read an answer."""
    call_timeout_ms: int = Field(default=10_000, ge=100, le=300_000)
    """How long nodes are tried, beside the time that a receive waits."""
    stop_ms: int = Field(default=25_000, ge=0, le=600_000)

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """What goes together, and what must not."""
        if bool(self.cert) != bool(self.key):
            raise ValueError("cert goes with key")
        if self.client_ca and not self.cert:
            raise ValueError("client_ca needs cert and key")
        if self.certificates and not self.client_ca:
            raise ValueError("certificates need client_ca")
        if not (self.cert or self.behind_proxy or is_loopback(self.address[0])):
            raise ValueError(
                f"listen = {self.listen!r}: beyond loopback callers' secrets would go in the clear:"
                " give cert and key, or say behind_proxy = true"
            )
        return self

    @property
    def address(self) -> tuple[str, int]:
        """Of `listen`. Raises ValueError."""
        return split_address(self.listen)


class Settings(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    http: HttpSection = Field(default_factory=HttpSection)


def split_address(text: str) -> tuple[str, int]:
    """Host and port. Raises ValueError: it is not host:port."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > 65_535:  # noqa: PLR2004
        raise ValueError(f"{text!r} is not host:port")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_settings(path: Path | None, listen: str = "") -> HttpSection:
    """From the file, if there is one; `listen` instead of what it says.

    Raises:
        ConfigError: it cannot be read, or something is wrong in it.
    """
    raw: dict[str, object] = {}
    if path is not None:
        raw = read_toml(path)
    if listen:
        section = raw.setdefault("http", {})
        if isinstance(section, dict):
            section["listen"] = listen
    try:
        return Settings.model_validate(raw).http
    except ValidationError as error:
        raise config_error(path, error) from None


def read_toml(path: Path) -> dict[str, object]:
    """What is in a file of configuration. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
        if len(raw) > FILE_BYTES_MAX:
            raise ConfigError(f"{path} is larger than {FILE_BYTES_MAX} bytes")
        return tomllib.loads(raw.decode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from None


def config_error(path: Path | None, error: ValidationError) -> ConfigError:
    """The first thing that is wrong, with the key, and never with the value."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    key = ".".join(map(str, first["loc"]))
    return ConfigError(f"{path or 'options'}: {key}: {first['msg']}", key=key)
