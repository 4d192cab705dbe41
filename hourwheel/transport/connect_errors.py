"""Why there is no connection: from gRPC's long words to what somebody can do something about."""

import re
from typing import Final

_CAUSES: Final = (
    ("Connection refused", "connection refused: is a node running there?"),
    ("errors resolving", "the host's name cannot be resolved"),
    ("Failed parsing HTTP/2", "gRPC is not spoken there: is it the port of the metrics?"),
    ("WRONG_VERSION_NUMBER", "no TLS is spoken there"),
    ("CERTIFICATE_VERIFY_FAILED", "the node's certificate is of no authority that is trusted here"),
    ("Hostname Verification Check failed", "the node's certificate is for another name"),
)
"""(what gRPC's text has in it, what is said instead), the first that fits."""
_LEAD: Final = re.compile(r"^.*?last error: [A-Z_]+: (?:(?:ipv4|ipv6|unix)\S* )?")
"""What gRPC says before the cause; of the address only its own form, which may be another one."""
_CHARS_MAX: Final = 200


def explain(details: str) -> str:
    """What gRPC said of a call without a connection, in few words; empty where it said nothing."""
    for part, cause in _CAUSES:
        if part in details:
            return cause
    return _LEAD.sub("", details.strip())[:_CHARS_MAX]


def describe(server: str, causes: list[str]) -> str:
    """One sentence: that there is no connection to `server`, and the causes as far as known."""
    known = "; ".join(dict.fromkeys(filter(None, causes)))
    return f"no connection to {server}" + (f": {known}" if known else "")
