"""The reason why the node cannot go on: any part reports one here, and the process ends."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hourwheel import errors


@dataclass(slots=True)
class Failure:
    """Takes the reason why the node cannot go on; the first one counts."""

    found: asyncio.Future[errors.HourwheelError] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    can_be_mended: bool = False
    """What was found is of the views, and a start builds these anew."""
    mending: asyncio.Future[None] | None = None
    """Done when the files say so: a job may have to end before."""

    def report(self, error: errors.HourwheelError) -> None:
        """Say that the process must stop because of `error`."""
        if not self.found.done():
            self.found.set_result(error)

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Whatever is raised inside is a reason to stop."""
        try:
            yield
        except errors.HourwheelError as error:
            self.report(error)
        except Exception as error:  # noqa: BLE001 - a bug: the process must end, and say why
            self.report(errors.Internal(repr(error)))
