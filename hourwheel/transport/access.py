"""How a client knows the nodes, and how it shows who it is.

    tls     True, or Tls(ca=..., cert=..., key=...)    the nodes' certificates, and the client's
    token   a text, or a function that gives one       a signed token, checked by the node
    user    (name, secret)                             checked against a hash in the cluster

All clients of an event loop with equal `Access` share connections. Secrets are in no `repr`, and
are never sent in the clear to another machine.
"""

import base64
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, TypeAlias

import grpc

from hourwheel import errors

AUTHORIZATION: Final = "authorization"
"""Key of a call's metadata, with the token, or with user and secret."""

_SOURCE_BITS: Final = 64
"""Of an IPv6 address: as many as tell one customer of a provider from the next."""

Metadata: TypeAlias = tuple[tuple[str, str], ...]
Token: TypeAlias = str | Callable[[], str]


@dataclass(frozen=True)
class Tls:
    """Which authority signs the nodes' certificates, and the client's own certificate.

    Files of PEM. They are read when a connection is made, so a new one has what is there then.
    """

    ca: str | Path | None = None
    """None: the authorities that gRPC knows, as a browser."""
    cert: str | Path | None = None
    """The client's certificate and what leads to its authority; goes with `key`."""
    key: str | Path | None = None
    name: str = ""
    """What the nodes' certificates are for, where that is not the host that is connected to."""


@dataclass(frozen=True)
class Access:
    """See the top of this file. `Access()`: in the clear, and anonymous."""

    tls: Tls | None = None
    token: Token | None = field(default=None, repr=False)
    user: tuple[str, str] | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        tls: Tls | bool | None = None,  # noqa: FBT001 - users say tls=True
        token: Token | None = None,
        user: tuple[str, str] | None = None,
    ) -> "Access":
        """From the options of a client.

        Raises:
            InvalidArgument: they do not go together.
        """
        if token is not None and user is not None:
            raise errors.InvalidArgument("give either a token or a user")
        if user is not None and (":" in user[0] or not user[0]):
            raise errors.InvalidArgument("a user's name is not empty, and has no colon")
        found = Tls() if tls is True else tls or None
        if found is not None and (found.cert is None) != (found.key is None):
            raise errors.InvalidArgument("a client's certificate goes with its key")
        return cls(found, token, user)

    def check(self, address: str) -> None:
        """Refuse to send a secret in the clear to another machine.

        Raises:
            Unprotected: `address`, host:port, is one, and there is no TLS.
        """
        is_secret = self.token is not None or self.user is not None
        if is_secret and self.tls is None and not _is_loopback(address):
            raise errors.Unprotected(
                f"a token or a user's secret is not sent to {address} without TLS", address=address
            )

    def channel_credentials(self) -> grpc.ChannelCredentials | None:
        """For a new connection; None: in the clear.

        Raises:
            InvalidArgument: a file cannot be read.
        """
        tls = self.tls
        if tls is None:
            return None
        return grpc.ssl_channel_credentials(_read(tls.ca), _read(tls.key), _read(tls.cert))

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """Of the channel."""
        if self.tls is None or not self.tls.name:
            return ()
        return (("grpc.ssl_target_name_override", self.tls.name),)

    @property
    def metadata_changes(self) -> bool:
        """Whether `metadata` may be another one the next time."""
        return callable(self.token)

    def metadata(self) -> Metadata:
        """Of a call or stream that begins now.

        Raises:
            Unauthenticated: the function gives none.
        """
        if not callable(self.token):
            return self._fixed
        try:
            token = self.token()
        except Exception as error:
            raise errors.Unauthenticated("there is no token: its function has failed") from error
        return ((AUTHORIZATION, f"Bearer {token}"),)

    @cached_property
    def _fixed(self) -> Metadata:
        if self.user is not None:
            pair = base64.b64encode(":".join(self.user).encode()).decode()
            return ((AUTHORIZATION, f"Basic {pair}"),)
        if self.token is not None:
            return ((AUTHORIZATION, f"Bearer {self.token}"),)
        return ()


PLAIN: Final = Access()


def _read(path: str | Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise errors.InvalidArgument(f"{path} cannot be read: {error.strerror}") from error


def source_of(host: str) -> str:
    """What counts as one source of guesses: an IPv4 address, or the /64 of an IPv6 address.

    A caller who has one IPv6 address has the 2^64 beside it.

    Args:
        host: of who calls: an address, and perhaps its zone; what is none is a source by itself.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _SOURCE_BITS), strict=False))


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
