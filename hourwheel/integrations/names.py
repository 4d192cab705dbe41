"""Names of queues as names of topics and groups.

Celery's queues have names such as `celery@host.celery.pidbox`. A topic's name has [A-Za-z0-9_.-]
and `|`; whatever else there is becomes `|` and two hexadecimal digits for each byte, so that
different queues have different topics.
"""

import re
from functools import lru_cache
from typing import Final

from hourwheel import limits
from hourwheel.errors import InvalidTopic

_OTHER: Final = re.compile(rb"[^A-Za-z0-9_.-]")
_AFTER_HOST: Final = "||"
_KNOWN_MAX: Final = 1_024
"""Names are made once for many messages."""


@lru_cache(_KNOWN_MAX)
def topic_of(queue: str, virtual_host: str = "") -> str:
    """The topic of a queue, or the group that has its name.

    Args:
        queue: its name.
        virtual_host: queues of equal names in different ones have nothing in common.

    Raises:
        InvalidTopic: the name is empty, or too long.
    """
    topic = _prefix(virtual_host) + _escape(queue)
    if not queue or len(topic) > limits.NAME_BYTES_MAX:
        raise InvalidTopic(
            f"queue {queue!r} would be a topic of {len(topic)} bytes; 1 to"
            f" {limits.NAME_BYTES_MAX} are possible"
        )
    return topic


def _prefix(virtual_host: str) -> str:
    name = virtual_host.strip("/")
    return _escape(name) + _AFTER_HOST if name else ""


def _escape(text: str) -> str:
    return _OTHER.sub(lambda found: b"|%02x" % found[0][0], text.encode()).decode()
