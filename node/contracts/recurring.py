"""The engine's calls about recurrences, as the API makes them."""

from typing import NamedTuple, Protocol

from hourwheel.internal.v1.state_pb2 import RecurrenceConfig


class RecurrenceInfo(NamedTuple):
    """A recurrence as it is."""

    config: RecurrenceConfig
    name: str
    """Its own, in its topic."""
    version: int
    is_paused: bool
    occurrence_count: int
    """How many were published, since it was defined, and not taken back."""
    last_message_id: str
    """Of the last one; empty: none, or it was taken back."""
    last_due_ms: int
    """When that is due; 0 where it is empty."""


class RecurrencePort(Protocol):
    """What a node does with recurrences: `node.contracts.broker.EnginePort.recurring`.

    All methods raise NotMaster and ShuttingDown; those that change something DiskFull and
    FeatureLevelTooLow, too.
    """

    async def put(self, config: RecurrenceConfig, name: str, expected_version: int | None) -> int:
        """Make a recurrence of this name in `config.topic`, or define it anew; its version.

        Of `config` the name, and what is not given of the times, is filled in.

        Raises:
            InvalidRecurrence: of its times. TooManyRecurrences. RecurrenceChanged: it has another
            version than the one given; 0: it is not there. InvalidTopic, UnknownTopic, TopicPaused.
        """
        ...

    async def set_paused(self, topic: str, name: str, *, is_paused: bool) -> int:
        """Have it make no occurrences, or make them again; its version.

        Raises:
            UnknownRecurrence: it is not there. Of one that goes on as `put`, of its topic.
        """
        ...

    async def delete(self, topic: str, name: str) -> None:
        """It is gone for good. Raises UnknownRecurrence."""
        ...

    def get(self, topic: str, name: str) -> RecurrenceInfo:
        """One of them. Raises UnknownRecurrence."""
        ...

    def page(self, topic: str, after: str, count_max: int) -> tuple[list[RecurrenceInfo], str]:
        """Those of a topic, or of all ("") behind a place, and where to go on; "": they end."""
        ...

    async def next_times(self, config: RecurrenceConfig, count: int) -> list[int]:
        """The next times of a recurrence that may or may not be there. Raises InvalidRecurrence."""
        ...

    async def next_times_of(self, topic: str, name: str, count: int) -> list[int]:
        """Those of one that is there. Raises UnknownRecurrence."""
        ...


class RecurringPort(Protocol):
    """A part of `node.contracts.broker.EnginePort`."""

    @property
    def recurring(self) -> RecurrencePort:
        """Recurrences, for one call. Raises NotMaster, ShuttingDown."""
        ...
