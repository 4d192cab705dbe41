"""How long a message waits that a consumer did not finish: a group's retry policy.

The master computes the delay when it proposes the RESOLVE, and the record has the due time that
came out. So a policy, and what spreads it, may change without a word in the log.
"""

from typing import Final

from hourwheel.limits import NACK_DELAY_MS_MAX
from hourwheel.types import Position
from storage.views.catalog_items import Group

_DOUBLINGS_MAX: Final = 30
_MASK: Final = (1 << 64) - 1


def retry_delay_ms(group: Group, attempt: int) -> int:
    """Delay before the next delivery of a message that had so many.

    Step by step where the group has steps, the last of which goes on; else it doubles with each
    attempt, up to the group's cap.
    """
    past = max(attempt - 1, 0)
    if group.retry_delays_ms:
        return group.retry_delays_ms[min(past, len(group.retry_delays_ms) - 1)]
    return min(group.retry_delay_ms << min(past, _DOUBLINGS_MAX), group.retry_delay_ms_max)


def spread_delay_ms(group: Group, delay_ms: int, position: Position, attempt: int) -> int:
    """The delay, lengthened by up to the group's jitter: the same for the same arguments.

    Args:
        group: whose policy it is.
        delay_ms: as `retry_delay_ms` says.
        position: where the first of the messages stands that wait so long together.
        attempt: how many deliveries they had.
    """
    width = delay_ms * group.retry_jitter_percent // 100
    if not width:
        return delay_ms
    return min(delay_ms + _mixed(position << 16 ^ attempt) % (width + 1), NACK_DELAY_MS_MAX)


def _mixed(number: int) -> int:
    """SplitMix64's finish: numbers beside each other give numbers far from each other."""
    mixed = (number + 0x9E3779B97F4A7C15) & _MASK
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
    return mixed ^ mixed >> 31
