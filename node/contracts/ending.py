"""Requests for leases, and what ends them, as they pass between the API and the engine."""

from dataclasses import dataclass
from typing import Final, NamedTuple


class Attempt(NamedTuple):
    """Which poll of which poller a Receive is: the same one again gets the same lease."""

    poller_id: int
    number: int


@dataclass(frozen=True, slots=True)
class Ending:
    """What is to become of leased messages."""

    is_ack: bool = False
    """Done. Else they are given back, or rejected."""
    retry_delay_ms: int | None = None
    """Of what is given back; None: the group's own delay."""
    is_unbegun: bool = False
    """Given back by who has not begun with it: at once, and without an attempt."""
    rejection: str | None = None
    """Not None: no attempt is of any use, for this reason, which may be empty."""

    @property
    def is_rejection(self) -> bool:
        """Whether attempts that are left are given up."""
        return self.rejection is not None


ACKED: Final = Ending(is_ack=True)
