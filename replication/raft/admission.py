"""Whether a voter that begins with nothing may vote, and acknowledge entries. Pure.

It may be new. Or it was a voter, and has lost its disk: then it may have voted in this very term,
and others may have counted entries as safe that it had acknowledged. It cannot know, and others do:
each journal has an id, and who says that it does not know a voter notes the id of its journal
first. So it takes no part until more than half of the others have said so: any two such sets have a
node in common, the set of its former life and that of this one.

    voters   must have said so
         1   0
         3   2 of 2
         5   3 of 4

One that knows it is enough to end it.
"""

from hourwheel.types import NodeId


def words_needed(voter_count: int) -> int:
    """How many others must have said that they do not know it."""
    other_count = voter_count - 1
    return min(other_count, other_count // 2 + 1)


class Admission:
    """Of one voter to its generation.

    Attributes:
        is_given: it takes part.
    """

    def __init__(self, voter_count: int, *, is_blank: bool) -> None:
        """`is_blank`: it begins with nothing, and is one of `voter_count`."""
        self._needed = words_needed(voter_count) if is_blank else 0
        self._unknown_to: set[NodeId] = set()
        self.is_given = not self._needed

    def on_unknown(self, peer_id: NodeId) -> bool:
        """A peer does not know it. True: now it may take part, and might not before."""
        self._unknown_to.add(peer_id)
        was_given, self.is_given = self.is_given, len(self._unknown_to) >= self._needed
        return self.is_given and not was_given


__all__ = ["Admission", "words_needed"]
