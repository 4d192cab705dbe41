"""The owner of the topics and groups of a log: beside the naive model of chaos/log_model.py."""

from dataclasses import dataclass, field

from hourwheel.internal.v1.state_pb2 import ConfigChange

NUMBERS_END = 1 << 24
"""Above every topic's number."""


@dataclass
class Owners:
    """The log alone, until a change says which revision of the control state it was taken from."""

    own_numbers: set[int] = field(default_factory=set)
    """Ids that were given out from the top downwards."""
    revision: int = 0
    """Highest of the control state that a change was taken from; 0: the log decides alone."""

    def may_change(self, topics: dict[int, str], change: ConfigChange) -> bool:
        """Not where it is not from the control state, or from an earlier one than was applied.

        `topics`: the names of those that are there; the cluster's own are the log's in any case.
        """
        name = change.put_topic.name or topics.get(change.delete_topic_id, "")
        is_own = name.startswith("%")
        is_own |= change.WhichOneof("change") in {"put_subscription", "reset_subscription"}
        return not self.revision or is_own or change.control_revision >= self.revision

    def note(self, revision: int, *, is_done: bool) -> bool:
        """A change took effect or not; the same is returned."""
        if is_done:
            self.revision = max(self.revision, revision)
        return is_done

    def is_free(self, number: int, topics: dict[int, str], deleted: dict[int, str]) -> bool:
        """Whether a new topic may have a number."""
        low = max([0, *(topics.keys() | deleted.keys()) - self.own_numbers])
        return low < number < min([NUMBERS_END, *self.own_numbers])

    def take(self, number: int, name: str, topics: dict[int, str], deleted: dict[int, str]) -> bool:
        """Whether a new topic may have its name and number; no number is given out twice."""
        if name in topics.values() or not self.is_free(number, topics, deleted):
            return False
        if self.revision and name.startswith("%"):
            self.own_numbers.add(number)
        return True
