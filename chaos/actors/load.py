"""What an actor sees of the load that it is a part of: history, clock, and how to publish."""

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from chaos.history import History, body_of
from chaos.message_mix import Mix
from hourwheel import AsyncProducer, Message, MessageId, errors
from hourwheel.clock import SystemClock

_LIST_MAX: Final = 8


class Load(Protocol):
    """See `chaos.workload.Workload`, which is it."""

    hang_s: float
    """How long anything may take."""

    mix: Mix
    history: History
    clock: SystemClock
    given_up: list[errors.HourwheelError]
    """Why clients that try again until there is an answer ended with an error all the same."""
    is_stopping: bool
    """No more messages are to be published."""

    def chooser(self, name: object) -> random.Random:
        """Makes the same choices for the same seed and name."""
        ...

    async def wait_for(self, condition: Callable[[], object]) -> None:
        """Go on until `condition` holds."""
        ...

    async def pass_ms(self, duration_ms: float) -> None:
        """Let the real node have some real time."""
        ...

    def make(
        self, topic: str, count: int, chooser: random.Random, *, with_far: bool = True
    ) -> tuple[list[int], list[int], bool]:
        """(serials, times, whether those are delays) of new messages, taken down as sent."""
        ...

    async def publish_together(
        self,
        producer: AsyncProducer,
        topic: str,
        serials: list[int],
        messages: Sequence[Message],
        chooser: random.Random,
    ) -> None:
        """Publish messages of these serials as one list, and take down what is said of it."""
        ...

    def asking(self) -> AbstractContextManager[None]:
        """What is requested inside may happen before its answer has been taken down."""
        ...

    def accept(self, serials: list[int], ids: list[MessageId], chooser: random.Random) -> None:
        """These messages are safe; some of them are to be taken back, or moved."""
        ...

    def fail(self, serials: list[int], error: errors.HourwheelError) -> None:
        """These were refused, or their outcome is unknown."""
        ...

    def expect(self, serials: Sequence[int]) -> None:
        """These messages are to come before all is settled."""
        ...

    def close(self, serial: int) -> None:
        """This message is not waited for any more."""
        ...

    def open_in(self, topic: str) -> int:
        """How many messages of the topic have not been heard of again."""
        ...

    async def room(self, topic: str) -> bool:
        """Wait until more may be published to it; False when nothing is to be any more."""
        ...

    def note(self) -> None:
        """An answer came."""
        ...


async def publish_lists(
    load: Load,
    producer: AsyncProducer,
    topic: str,
    name: str,
    *,
    pause_ms: float,
    priorities: Sequence[int] = (),
) -> None:
    """Lists of few messages, until there shall be no more. `name`: of the choices."""
    chooser = load.chooser(name)
    while await load.room(topic):
        count = chooser.randint(1, _LIST_MAX)
        serials, times, is_delay = load.make(topic, count, chooser, with_far=False)
        messages = [
            Message(
                body_of(serial),
                delay_ms=at if is_delay else None,
                due_ms=None if is_delay else at,
                priority=chooser.choice(priorities) if priorities else 0,
            )
            for serial, at in zip(serials, times, strict=True)
        ]
        await load.publish_together(producer, topic, serials, messages, chooser)
        await load.pass_ms(pause_ms)
