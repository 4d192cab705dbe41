"""Who calls: credentials of a request, passed on to the nodes, which alone know whether they hold.

    Authorization: Bearer <token>       a signed token
    Authorization: Basic <name:secret>  a user
    a certificate                       stands for the credentials that the configuration gives it
    nothing                             anonymous: may do nothing with access control on

Credentials that are new are shown to a node before anything more of their request is read; few at
a time, and fewer from one address, or one /64 of IPv6. Those that hold have a channel of their own
from then on, until others need the room or a node refuses them.
"""

import asyncio
import base64
import binascii
import hashlib
import json
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hourwheel import errors
from hourwheel.errors import required
from hourwheel.gateway.listings import ListingTurns
from hourwheel.transport.access import Access, Tls, source_of
from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import GET_STATUS
from hourwheel.v1 import admin_pb2

CALLERS_MAX: Final = 256
CHECKS: Final = 4
"""Credentials that are shown to a node at one time, and"""
CHECKS_WAITING: Final = 32
"""those that wait for it."""
CHECKS_A_SOURCE: Final = 2
CHECK_MS: Final = 5_000.0
REACH_MS: Final = 2_000.0
REACHED_S: Final = 1.0
REFUSED_S: Final = 1.0
"""So long it holds that a node has access control on, and serves no call without credentials."""
_CREDENTIAL_CHARS_MAX: Final = 8_192


@dataclass(slots=True, eq=False)
class KnownCaller:
    """Somebody whose credentials held when they were last looked at."""

    key: str
    name: str
    """As the nodes know the caller, as far as the credentials say so; empty: anonymous."""
    channel: Channel
    calls: int = field(default=0)
    """Under way."""
    listings: ListingTurns = field(default_factory=ListingTurns)
    is_dropped: bool = field(default=False)


class Callers:
    """See the top of this file. Belongs to one event loop."""

    def __init__(
        self,
        servers: str,
        tls: Tls | None,
        *,
        call_timeout_ms: float,
        certificates: Mapping[str, str],
        callers_max: int = CALLERS_MAX,
    ) -> None:
        """No caller is known yet.

        Args:
            servers: the nodes.
            tls: how their certificates are known; None: in the clear.
            call_timeout_ms: of a call.
            certificates: a certificate's name -> the Authorization that it stands for.
            callers_max: so many have a channel at one time.
        """
        self._servers, self._tls, self._certificates = servers, tls, certificates
        self._call_timeout_ms, self._callers_max = call_timeout_ms, callers_max
        self._known: OrderedDict[str, KnownCaller] = OrderedDict()
        self._checks = asyncio.Semaphore(CHECKS)
        self._checking: dict[str, asyncio.Task[KnownCaller]] = {}
        self._sources: Counter[str] = Counter()
        self._closing: set[asyncio.Task[None]] = set()
        self._probe: Channel | None = None
        self._reaching: asyncio.Task[bool] | None = None
        self._reached_until_s = 0.0
        self._nobody_refused_until_s = 0.0

    @property
    def count(self) -> int:
        """Credentials that have a channel."""
        return len(self._known)

    def change(self, certificates: Mapping[str, str], call_timeout_ms: float) -> None:
        """See `__init__`. Channels that there are keep their time."""
        self._certificates, self._call_timeout_ms = certificates, call_timeout_ms

    async def is_reaching_nodes(self) -> bool:
        """Whether a node answers, whatever it says; as of a second ago."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._reached_until_s and (
            self._reaching is None or self._reaching.done()
        ):
            self._reaching = loop.create_task(self._reach())
        return await asyncio.shield(required(self._reaching, "a check of the nodes was started"))

    async def _reach(self) -> bool:
        if self._probe is None:
            self._probe = Channel(self._servers, tls=self._tls)
        try:
            await self._probe.call(GET_STATUS, admin_pb2.GetStatusRequest(), timeout_ms=REACH_MS)
        except (errors.PermissionDenied, errors.Unauthenticated):
            pass
        except errors.HourwheelError:
            return False
        self._reached_until_s = asyncio.get_running_loop().time() + REACHED_S
        return True

    async def close(self) -> None:
        """Leave all connections; what is under way ends."""
        if self._reaching is not None:
            self._reaching.cancel()
            await asyncio.wait([self._reaching])
        if self._probe is not None:
            await self._probe.close()
        for task in self._checking.values():
            task.cancel()
        for caller in list(self._known.values()):
            self._forget(caller, at_once=True)
        while self._closing:
            await asyncio.wait(self._closing)

    def authorization_of(self, given: str | None, certificate_name: str) -> str:
        """What is passed on to the nodes: what was sent, else what the certificate stands for.

        Raises:
            Unauthenticated: the certificate stands for no principal.
        """
        if given is not None:
            return given
        if not certificate_name:
            if self._tls is not None and self._tls.cert is not None:
                raise errors.Unauthenticated("credentials are needed")  # never the gateway's own
            return ""
        found = self._certificates.get(certificate_name)
        if found is None:
            raise errors.Unauthenticated("this certificate stands for no principal")
        return found

    async def enter(self, authorization: str, host: str) -> KnownCaller:
        """Who calls; `leave` ends it.

        Args:
            authorization: see `authorization_of`.
            host: address of the caller, for the share of checks of its source: see `source_of`.

        Raises:
            Unauthenticated: the credentials do not hold.
            Overloaded: too many others are being looked at.
            HourwheelError: no node has answered.
        """
        if not authorization and asyncio.get_running_loop().time() < self._nobody_refused_until_s:
            raise errors.Unauthenticated("credentials are needed")
        key = hashlib.sha256(authorization.encode("utf-8", "surrogatepass")).hexdigest()
        while True:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                known.calls += 1
                return known
            task = self._checking.get(key)
            if task is None:
                task = self._begin(key, authorization, host)
            await asyncio.shield(task)

    def leave(self, caller: KnownCaller, error: errors.HourwheelError | None = None) -> None:
        """A call has ended. Credentials that a node has refused meanwhile are forgotten."""
        caller.calls -= 1
        if isinstance(error, errors.Unauthenticated):
            self._forget(caller)
        elif caller.is_dropped and not caller.calls:
            self._close(caller)

    def _begin(self, key: str, authorization: str, host: str) -> "asyncio.Task[KnownCaller]":
        source = source_of(host)
        if len(self._checking) >= CHECKS_WAITING or self._sources[source] >= CHECKS_A_SOURCE:
            raise errors.Overloaded("too many credentials are being checked", limit="checks")
        self._sources[source] += 1
        task = asyncio.get_running_loop().create_task(self._check(key, authorization))
        self._checking[key] = task

        def end(ended: "asyncio.Task[KnownCaller]") -> None:
            del self._checking[key]
            self._sources[source] -= 1
            if not self._sources[source]:
                del self._sources[source]
            if not ended.cancelled():
                ended.exception()  # those who waited may have gone

        task.add_done_callback(end)
        return task

    async def _check(self, key: str, authorization: str) -> KnownCaller:
        self._make_room()
        name, access = read_authorization(authorization, self._tls)
        async with self._checks:
            channel = Channel(
                self._servers,
                tls=access.tls,
                token=access.token,
                user=access.user,
                call_timeout_ms=self._call_timeout_ms,
            )
            try:
                await channel.call(GET_STATUS, admin_pb2.GetStatusRequest(), timeout_ms=CHECK_MS)
            except BaseException as error:
                await channel.close()
                if isinstance(error, errors.PermissionDenied):  # only anonymous callers may not ask
                    self._nobody_refused_until_s = asyncio.get_running_loop().time() + REFUSED_S
                    raise errors.Unauthenticated("credentials are needed") from None
                raise
        caller = KnownCaller(key, name, channel)
        self._known[key] = caller
        return caller

    def _make_room(self) -> None:
        """Forget who was here longest ago. Raises Overloaded: all of them have calls under way."""
        while len(self._known) + len(self._checking) > self._callers_max:
            idle = next((one for one in self._known.values() if not one.calls), None)
            if idle is None:
                raise errors.Overloaded("too many callers at one time", limit="callers")
            self._forget(idle)

    def _forget(self, caller: KnownCaller, *, at_once: bool = False) -> None:
        if self._known.get(caller.key) is caller:
            del self._known[caller.key]
        caller.is_dropped = True
        if at_once or not caller.calls:
            self._close(caller)

    def _close(self, caller: KnownCaller) -> None:
        task = asyncio.get_running_loop().create_task(caller.channel.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def read_authorization(text: str, tls: Tls | None) -> tuple[str, Access]:
    """(the name that it speaks of, how a client shows it); text is empty for an anonymous one.

    The name of a token is not checked here: a node does, before anything is done in that name.

    Raises:
        Unauthenticated: it is no such thing.
    """
    if not text:
        return "", Access.of(tls)
    scheme, _, rest = text.partition(" ")
    rest = rest.strip()
    if not rest or len(rest) > _CREDENTIAL_CHARS_MAX or not rest.isascii():
        raise errors.Unauthenticated
    try:
        if scheme.lower() == "basic":
            name, colon, secret = base64.b64decode(rest, validate=True).decode().partition(":")
            if not colon:
                raise errors.Unauthenticated
            return name, Access.of(tls, user=(name, secret))
        if scheme.lower() == "bearer":
            return _subject_of(rest), Access.of(tls, token=rest)
    except (binascii.Error, ValueError, errors.InvalidArgument):
        pass
    raise errors.Unauthenticated


def _subject_of(token: str) -> str:
    """The claim `sub`; of what is no signed token, the token."""
    part = token.split(".")[1] if token.count(".") == 2 else ""  # noqa: PLR2004 - three parts
    try:
        claims: Any = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        claims = None
    subject = claims.get("sub") if isinstance(claims, dict) else None
    return subject if isinstance(subject, str) else token


def name_of(certificate: Mapping[str, Any] | None) -> str:
    """The name in a verified certificate, as nodes read it: its one URI, common or DNS name.

    Args:
        certificate: as `ssl.SSLObject.getpeercert` gives it; None or empty: there is none.
    """
    if not certificate:
        return ""
    names = certificate.get("subjectAltName", ())
    uris = [text for kind, text in names if kind == "URI"]
    hosts = [text for kind, text in names if kind == "DNS"]
    common = [
        text
        for part in certificate.get("subject", ())
        for kind, text in part
        if kind == "commonName"
    ]
    for found in (uris, common, hosts):
        if found:
            return found[0] if len(found) == 1 else ""
    return ""
