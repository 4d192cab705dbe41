"""Where two logs part, by their epochs alone (Kafka's KIP-101 and KIP-279).

In one epoch one master appends, and each follower copies a prefix of what it appended, after its
log was made equal to the master's up to the epoch's beginning. So two logs that both know an epoch
are equal up to where the first of them leaves it:

    master    | epoch 3        | epoch 5     | epoch 8 ...
    follower  | epoch 3        | epoch 5 . . . . . | epoch 6 |
                                             ^ they part here

An epoch belongs to one master for ever (`replication.rules.epoch_store` refuses another one), so
one number never names two histories.
"""

from collections.abc import Sequence

from hourwheel.types import Offset
from storage.log.epoch_file import EpochEntry


def find_parting(
    master: Sequence[EpochEntry],
    master_span: tuple[int, int],
    follower: Sequence[EpochEntry],
    follower_span: tuple[int, int],
) -> Offset | None:
    """Up to where the logs are the same, or None where that cannot be known or is not there.

    Args:
        master: its epochs, oldest first.
        master_span: [start, end) of its log.
        follower: its epochs, oldest first.
        follower_span: [start, end) of its log.

    Returns:
        An offset that both logs reach and from which the master can send.
    """
    starts = {entry.epoch: entry.start_offset for entry in master}
    for index in range(len(follower) - 1, -1, -1):
        epoch, start = follower[index]
        if starts.get(epoch) != start:
            continue
        # An epoch may be noted before its first batch, or those in front of it, are in the log.
        ends = _end_of(master, epoch, master_span[1]), _end_of(follower, epoch, follower_span[1])
        parting = min(*ends, master_span[1], follower_span[1])
        is_sendable = master_span[0] <= parting and follower_span[0] <= parting
        return Offset(parting) if is_sendable else None
    # No epoch in common: a log that begins at 0 can be built from the beginning.
    return Offset(0) if master_span[0] == 0 and follower_span[0] == 0 else None


def _end_of(entries: Sequence[EpochEntry], epoch: int, log_end: int) -> int:
    for entry in entries:
        if entry.epoch > epoch:
            return entry.start_offset
    return log_end
