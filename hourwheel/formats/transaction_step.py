"""What becomes of a transaction that is open, as rows of TRANSACT say it."""

from enum import IntEnum


class Step(IntEnum):
    """What a TRANSACT row does to a transaction that is open."""

    CHECK = 1
    """Its producers are asked what became of it."""
    ROLL_BACK = 2
    """A producer's or an operator's word."""
    EXPIRE = 3
    """Rolled back, since its outcome was not reported in time."""
