"""What the services of a mastership need of the engine that runs them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hourwheel.errors import HourwheelError
from node.replica.mastership import Mastership, Proposer
from node.telemetry.stats import EngineStats

T = TypeVar("T")
"""What apply says of a record."""


class Propose(Protocol):
    """How a record comes into the log."""

    def __call__(
        self, append: Callable[[int, Proposer[T]], None], now_ms: int | None = None
    ) -> "asyncio.Future[T]":
        """Append something: `append(now_ms, proposer)`. The future gets what apply says of it.

        `now_ms`: the reading of the turn that this is a part of; None: of a turn of its own.

        Raises:
            ShuttingDown, NotMaster: nothing was appended.
        """


class Serving(Protocol):
    """One mastership that serves, and the engine around it. On the event loop's thread."""

    mastership: Mastership
    stats: EngineStats

    def now_ms(self) -> int:
        """The cluster clock."""
        ...

    def check(self) -> None:
        """Raises ShuttingDown or NotMaster where no call may be served, for now or for good."""
        ...

    def propose(
        self, append: Callable[[int, Proposer[T]], None], now_ms: int | None = None
    ) -> "asyncio.Future[T]":
        """See `Propose`."""
        ...

    def rearm(self) -> None:
        """Something may have to happen earlier than was planned."""
        ...

    def guarded(self, step: Callable[[], None]) -> Callable[[], None]:
        """`step` as a callback of the loop whose error stops the node."""
        ...

    def fail(self, error: HourwheelError) -> None:
        """The node cannot go on."""
        ...


class ServingConsumers(Serving, Protocol):
    """What the consumers' services ask of it as well."""

    def propose_resolve(self, rows: NDArray[np.void]) -> "asyncio.Future[Sequence[int]]":
        """Append rows of RESOLVE, in one record with others' where they come together.

        The future gets how many positions each row has resolved. Raises as `propose`.
        """
        ...
