"""What says that a POST is ours: the signature of Standard Webhooks (standardwebhooks.com). Pure.

    webhook-id          the message's id: the same each time that it is tried
    webhook-timestamp   seconds since the Unix epoch, of this try
    webhook-signature   "v1," and the base64 of HMAC-SHA256(secret, id "." timestamp "." body);
                        several with spaces between, one for each secret

A secret is "whsec_" and the base64 of 24 to 64 random bytes.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from hourwheel.errors import ConfigError

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - of secrets, none itself
SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64
SECRETS_MAX: Final = 4


def read_secrets(text: str) -> tuple[bytes, ...]:
    """The secrets of a file, one a line; who verifies needs one of them, so they can be changed.

    Raises:
        ConfigError: there is none, or more than `SECRETS_MAX`, or one is no such secret. The text
            is not in the error.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not 0 < len(lines) <= SECRETS_MAX:
        raise ConfigError(f"1 to {SECRETS_MAX} secrets are needed, one a line")
    return tuple(map(_read, lines))


def _read(line: str) -> bytes:
    raw = b""
    if line.startswith(SECRET_PREFIX):
        try:
            raw = base64.b64decode(line.removeprefix(SECRET_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raw = b""
    if not SECRET_BYTES_MIN <= len(raw) <= SECRET_BYTES_MAX:
        raise ConfigError(
            f"a secret is {SECRET_PREFIX} and the base64 of {SECRET_BYTES_MIN} to"
            f" {SECRET_BYTES_MAX} bytes"
        )
    return raw


def sign(secrets: Sequence[bytes], message_id: str, timestamp_s: int, body: bytes) -> str:
    """The value of `webhook-signature`."""
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    digests = (hmac.new(secret, signed, hashlib.sha256).digest() for secret in secrets)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)
