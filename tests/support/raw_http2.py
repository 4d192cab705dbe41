"""HTTP/2 by hand, for clients that break its rules or wear a server out.

with connect(address, context) as connection:
    connection.sendall(PREFACE + settings() + headers(1, b"/hourwheel.v1..."))
"""

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _CONTINUATION = 0x0, 0x1, 0x3, 0x4, 0x6, 0x9
_END_STREAM: Final = 0x1
_END_HEADERS: Final = 0x4
_INITIAL_WINDOW_SIZE: Final = 0x4
_FRAME_BYTES: Final = 16_384
_PREFIX_MAX: Final = 127
_CANCEL: Final = 8


def connect(address: str, context: ssl.SSLContext | None, timeout_s: float = 30.0) -> socket.socket:
    """A connection; over TLS, with its handshake done, where there is a context."""
    host, _, port = address.rpartition(":")
    plain = socket.create_connection((host, int(port)), timeout=timeout_s)
    if context is None:
        return plain
    return context.wrap_socket(plain, server_hostname=host)


def settings(initial_window_bytes: int = 65_535) -> bytes:
    """What the client says of itself."""
    return _frame(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, initial_window_bytes))


def ping() -> bytes:
    """A ping that wants an answer."""
    return _frame(_PING, 0, 0, bytes(8))


def reset(stream: int) -> bytes:
    """The client does not want the answer any more."""
    return _frame(_RST_STREAM, 0, stream, struct.pack(">I", _CANCEL))


def headers(stream: int, path: bytes, **metadata: bytes) -> bytes:
    """Open a call; metadata as long as one likes."""
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": path,
        b":authority": b"node",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
        **{name.encode(): value for name, value in metadata.items()},
    }
    block = b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields.items())
    parts = [block[at : at + _FRAME_BYTES] for at in range(0, len(block), _FRAME_BYTES)]
    last = len(parts) - 1
    return b"".join(
        _frame(
            _CONTINUATION if number else _HEADERS,
            _END_HEADERS if number == last else 0,
            stream,
            part,
        )
        for number, part in enumerate(parts)
    )


def unary_call(stream: int, path: bytes, request: bytes, **metadata: bytes) -> bytes:
    """A whole unary call of gRPC: its headers and its request."""
    message = b"\x00" + struct.pack(">I", len(request)) + request
    opened = headers(stream, path, **metadata)
    return opened + _frame(_DATA, _END_STREAM, stream, message)


@contextmanager
def unread_calls(address: str, path: bytes, request: bytes, count: int) -> Iterator[None]:
    """So many calls whose client lets nothing of their answers in."""
    with connect(address, None) as connection:
        connection.sendall(PREFACE + settings(initial_window_bytes=0))
        for number in range(count):
            connection.sendall(unary_call(1 + 2 * number, path, request))
        yield


def send_until_refused(connection: socket.socket, raw: bytes, times: int) -> bool:
    """Send so often; whether the other side ended the connection meanwhile. Reads nothing."""
    try:
        for _ in range(times):
            connection.sendall(raw)
    except (OSError, TimeoutError):  # ended; or it takes no more, because nothing is read
        return True
    return False


def is_ended(connection: socket.socket) -> bool:
    """Read until the other side ends the connection; False: it did not within the time-out."""
    with suppress(OSError):
        while connection.recv(65_536):
            pass
        return True
    return False


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _text(raw: bytes) -> bytes:
    """A string of HPACK, not compressed."""
    return _number(len(raw)) + raw


def _number(value: int) -> bytes:
    if value < _PREFIX_MAX:
        return bytes([value])
    found, rest = bytearray([_PREFIX_MAX]), value - _PREFIX_MAX
    while rest >= 0x80:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)
