"""How many messages are due when, as the engine tells the API."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class WheelInfo:
    """How many messages are due in each range between n + 1 bounds."""

    now_ms: int
    """The cluster clock when counting began; all is as of then."""
    counts: NDArray[np.int64]
    """i64[n]: due at or after a bound and before the next one."""
    are_exact: NDArray[np.bool_]
    """bool[n]: False where a bound lies inside a second with messages, or inside an hour of a day
    that is not held by seconds yet: then they are taken to be spread evenly over it."""
    earlier_count: int
    """Due before the first bound."""
    later_count: int
    """Due at the last bound or later."""
    pending_count: int
    """Neither released nor cancelled."""
    cancelled_count: int
    """Of all that is counted above, what is cancelled: it stays until it would be due."""
