"""Why there is no connection: from gRPC's long words to what somebody can do something about."""

import re
from typing import Final

_CAUSES: Final = (
    ("Connection refused", "connection refused: is a node running there?"),
    ("errors resolving", "the host's name cannot be resolved"),
    (
        "Failed parsing HTTP/2",
        "gRPC is not spoken there: is it the port of the metrics or of the console?",
    ),
    ("WRONG_VERSION_NUMBER", "no TLS is spoken there: leave `tls` out, or take the other port"),
    (
        "certificate has expired",
        "the node's certificate has expired, or this machine's clock is wrong",
    ),
    (
        "certificate is not yet valid",
        "the node's certificate is not yet valid, or this machine's clock is wrong",
    ),
    (
        "self signed certificate",
        "the node's certificate is self-signed, and not trusted here: give it as `ca`",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "the node's certificate is of no authority that is trusted here: give that as `ca`",
    ),
    (
        "Hostname Verification Check failed",
        "the node's certificate is for another name: connect to that, or give it as `name`",
    ),
)
"""(what gRPC's text has in it, what is said instead), the first that fits."""
_OF_TLS: Final = {
    "WRONG_VERSION_NUMBER": "tls_not_spoken",
    "certificate has expired": "certificate_expired",
    "certificate is not yet valid": "certificate_not_yet_valid",
    "self signed certificate": "certificate_self_signed",
    "CERTIFICATE_VERIFY_FAILED": "certificate_untrusted",
    "Hostname Verification Check failed": "certificate_name",
}
"""What gRPC's text has in it -> `params["cause"]` of `TlsFailed`."""
_CLOSED: Final = ("Socket closed", "recvmsg", "Connection reset", "Broken pipe", "GOAWAY")
_LEAD: Final = re.compile(r"^.*?last error: [A-Z_]+: (?:(?:ipv4|ipv6|unix)\S* )?")
"""What gRPC says before the cause; of the address only its own form, which may be another one."""
_CHARS_MAX: Final = 200


def explain(details: str) -> str:
    """What gRPC said of a call without a connection, in few words; empty where it said nothing."""
    for part, cause in _CAUSES:
        if part in details:
            return cause
    return _LEAD.sub("", details.strip())[:_CHARS_MAX]


def find_tls_cause(details: str) -> str:
    """Why TLS failed, as a program reads it; empty: it was not TLS, or gRPC does not know."""
    return next((cause for part, cause in _OF_TLS.items() if part in details), "")


def may_hide_tls(details: str) -> bool:
    """Whether gRPC only saw that the other side hung up, which it does for want of TLS, too."""
    return any(part in details for part in _CLOSED)


def describe(server: str, causes: list[str]) -> str:
    """One sentence: that there is no connection to `server`, and the causes as far as known."""
    known = "; ".join(dict.fromkeys(filter(None, causes)))
    return f"no connection to {server}" + (f": {known}" if known else "")
