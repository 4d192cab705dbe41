"""Why a node hangs up: a handshake of TLS that is made to hear the reason, and for nothing else.

A node that does not accept a client's certificate ends the connection behind the handshake, where
others have the first bytes of HTTP/2; some servers send an alert. gRPC tells neither. So one
connection more is made. Nothing is sent over it, and no certificate is checked.
"""

import asyncio
import ssl
from typing import Final, NamedTuple

from hourwheel.transport.access import Tls

PROBE_S: Final = 1.0
"""How long it may take."""
_AGAIN_S: Final = 0.2


class Cause(NamedTuple):
    """Why there is no connection."""

    name: str
    """`params["cause"]` of `TlsFailed`; empty: it is not TLS."""
    words: str


NO_CAUSE: Final = Cause("", "")
_TLS_WANTED: Final = Cause("tls_wanted", "TLS is spoken there: give `tls` (--tls-ca)")
_WANTED: Final = Cause(
    "client_certificate_wanted",
    "the node hangs up behind the handshake: it wants a certificate of the client's, so give `cert`"
    " and `key`",
)
_REFUSED: Final = Cause(
    "client_certificate_refused",
    "the node hangs up behind the handshake: it does not accept the client's certificate, which is"
    " of an authority that it does not trust, not for clients, or not valid now",
)
_ALERTS: Final = (
    (("CERTIFICATE_REQUIRED",), _WANTED),
    (
        ("UNKNOWN_CA",),
        Cause(
            "client_certificate_untrusted",
            "the client's certificate is of no authority that the node trusts",
        ),
    ),
    (
        ("CERTIFICATE_EXPIRED",),
        Cause(
            "client_certificate_expired",
            "the client's certificate is not valid now, by the node's clock",
        ),
    ),
    (("CERTIFICATE",), _REFUSED),
)
"""(what an alert's name has in it, what it means), the first that fits."""


async def find_cause(address: str, tls: Tls | None) -> Cause:
    """Why a node at `address`, host:port, hangs up; `tls`: as the client has it."""
    try:
        async with asyncio.timeout(PROBE_S):
            found = await _ask(address, tls)
            if found in {_WANTED, _REFUSED}:  # or it stops just now
                await asyncio.sleep(_AGAIN_S)
                found = await _ask(address, tls)
            return found
    except ssl.SSLError as error:
        return _TLS_WANTED if tls is None and _is_alert(error) else _cause_of(error)
    except (OSError, TimeoutError, ValueError):
        return NO_CAUSE


async def _ask(address: str, tls: Tls | None) -> Cause:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if tls is not None and tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    name = (tls.name if tls else "") or host
    reader, writer = await asyncio.open_connection(
        host, int(port), ssl=context, server_hostname=name
    )
    try:
        if tls is None:
            return _TLS_WANTED
        if await _hangs_up(reader):
            return _WANTED if tls.cert is None else _REFUSED
    finally:
        writer.transport.abort()
    return NO_CAUSE


async def _hangs_up(reader: asyncio.StreamReader) -> bool:
    """Whether the node has nothing to say: in TLS 1.3 it looks at certificates last."""
    try:
        return not await reader.read(1)
    except ConnectionResetError:
        return True


def _is_alert(error: ssl.SSLError) -> bool:
    return "ALERT" in (error.reason or "")


def _cause_of(error: ssl.SSLError) -> Cause:
    if not _is_alert(error):
        return NO_CAUSE
    reason = error.reason or ""
    found = (cause for parts, cause in _ALERTS if any(part in reason for part in parts))
    return next(found, NO_CAUSE)
