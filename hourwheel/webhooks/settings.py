"""The configuration of `hourwheel push`: TOML, with a table for each subscription.

    [[subscriptions]]
    name = "shop"
    group = "shop-hooks"
    topics = ["orders"]
    url = "https://shop.example/hooks/orders"
    secret_file = "/etc/hourwheel/shop.secret"

Unknown keys are refused. Secrets are in files or in the environment, never in here.
"""

import os
import re
from pathlib import Path
from typing import Annotated, Final, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hourwheel import errors, limits
from hourwheel.filter_language.text import FilterExpression
from hourwheel.gateway.settings import config_error, read_toml, split_address
from hourwheel.webhooks.signature import read_secrets

__all__ = ["PushSettings", "Subscription", "Target", "read_push_settings", "split_address"]

SUBSCRIPTIONS_MAX: Final = 256
HEADERS_MAX: Final = 32
_SECRET_BYTES_MAX: Final = 4_096
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,1022}[\x21-\x7e])?")
_TARGET: Final = re.compile(r"[\x21-\x7e]{0,2048}")
_OURS: Final = re.compile(
    r"webhook-.*|hourwheel-.*|host|content-length|content-type|transfer-encoding|connection|expect"
    r"|te|trailer|upgrade",
    re.IGNORECASE,
)
_PORT_MAX: Final = 65_535

Name = Annotated[str, Field(min_length=1, max_length=limits.NAME_BYTES_MAX)]


class Target(NamedTuple):
    """Where a POST goes."""

    is_tls: bool
    host: str
    """A name or an address, without brackets."""
    port: int
    authority: str
    """For the header `host`."""
    path: str


class Subscription(BaseModel):
    """One of them."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    name: Name
    """In logs and metrics; unique."""
    group: Name
    topics: tuple[Name, ...] = Field(min_length=1, max_length=1_000, strict=False)
    url: str
    secret_file: str = ""
    """With secrets, one a line: the first for new, all of them sign; or"""
    secret_env: str = ""
    """the variable of the environment with them."""
    filter: str | None = None
    """By tags, or"""
    sql: str | None = None
    """by properties."""
    headers: dict[str, str] = Field(default={}, max_length=HEADERS_MAX)
    timeout_ms: int = Field(default=10_000, ge=10, le=600_000)
    """For all of a POST: name, connection, TLS, request, and the head of the answer."""
    concurrency: int = Field(default=8, ge=1, le=1_000)
    keep_ms: int = Field(default=15_000, ge=0, le=60_000)
    """How long a connection is kept for the next POST; 0: each has its own."""
    retry_after_ms_max: int = Field(default=3_600_000, ge=0, le=limits.NACK_DELAY_MS_MAX)
    ca: str = ""
    """Who signs the target's certificate, PEM; empty: the authorities of the system."""
    allow_http: bool = False
    """In the clear."""
    allow_private: bool = False
    """Also to loopback, private and link-local addresses."""

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """What goes together."""
        target_of(self.url, allow_http=self.allow_http)
        if bool(self.secret_file) == bool(self.secret_env):
            raise ValueError("either secret_file or secret_env is needed")
        if self.concurrency < len(self.topics):
            raise ValueError("concurrency is at least 1 for each topic")
        if self.filter is not None and self.sql is not None:
            raise ValueError("give either filter or sql")
        for name, text in self.headers.items():
            if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(text) or _OURS.fullmatch(name):
                raise ValueError(f"headers.{name} is none that may be set")
        return self

    @property
    def target(self) -> Target:
        """Of `url`."""
        return target_of(self.url, allow_http=self.allow_http)

    @property
    def wanted(self) -> FilterExpression | None:
        """The filter; None: as the group's subscription says."""
        if self.sql is not None:
            return FilterExpression.sql(self.sql)
        return None if self.filter is None else FilterExpression.tags(self.filter)

    def secrets(self) -> tuple[bytes, ...]:
        """From the file or the environment. Raises ConfigError."""
        if self.secret_env:
            text = os.environ.get(self.secret_env, "")
        else:
            try:
                with Path(self.secret_file).open("rb") as file:
                    text = file.read(_SECRET_BYTES_MAX).decode("ascii", "replace")
            except OSError as error:
                raise errors.ConfigError(
                    f"{self.name}: {self.secret_file} cannot be read: {error.strerror}"
                ) from None
        try:
            return read_secrets(text)
        except errors.ConfigError as error:
            raise errors.ConfigError(f"{self.name}: {error.message}") from None


class PushSettings(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    subscriptions: tuple[Subscription, ...] = Field(
        min_length=1, max_length=SUBSCRIPTIONS_MAX, strict=False
    )

    @model_validator(mode="after")
    def check_names(self) -> Self:
        """Names are unique, for metrics."""
        if len({one.name for one in self.subscriptions}) != len(self.subscriptions):
            raise ValueError("two subscriptions have one name")
        return self


def target_of(url: str, *, allow_http: bool) -> Target:
    """Where a POST to `url` goes. Raises ValueError: nowhere, or in the clear without leave."""
    if not _TARGET.fullmatch(url) or "\\" in url:
        raise ValueError("url has a character that no URL has, or is too long")
    parts = urlsplit(url)
    if parts.scheme not in {"https", "http"} or not parts.hostname:
        raise ValueError("url is not https://host/...")
    if parts.scheme == "http" and not allow_http:
        raise ValueError("url is in the clear: say allow_http = true, if that is meant")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError("url has a user or a fragment: neither is sent")
    is_tls = parts.scheme == "https"
    port = (443 if is_tls else 80) if parts.port is None else parts.port
    if not 0 < port <= _PORT_MAX:
        raise ValueError("url has a port that is none")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(is_tls, parts.hostname, port, parts.netloc, path)


def read_push_settings(path: Path) -> PushSettings:
    """From the file. Raises ConfigError: it cannot be read, or something is wrong in it."""
    try:
        return PushSettings.model_validate(read_toml(path))
    except ValidationError as error:
        raise config_error(path, error) from None
