"""Each message's own CRC32C, which goes with it to its consumer: over its meta and body.

A batch's CRC says that its bytes are those that were written. It does not say that a message's own
CRC, a column of the batch, is that of its bytes; where it is not, every node refuses to deliver the
message. This is looked at once, in the log that the audit goes by: other replicas have the same
bytes, or are found to differ. Of delay logs, which are each node's own, see `audit.bodies`.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hourwheel.crc32c import crc32c
from hourwheel.formats.record_batch import Kind
from spark_jobs.logs.block_table import BlockTable

Array = NDArray[Any]
I64 = NDArray[np.int64]
_CRC_BYTES: Final = 4
_ONES: Final = 0xFFFFFFFF


def bad_in_log(table: BlockTable) -> I64:
    """int64[m]: ordinals in `table.messages` of those whose bytes fail their CRC.

    A CRC is linear: if the CRC of each message is written where the message ends, into bytes that
    are zero else, these have the CRC of all messages together. So a batch is looked at as a whole,
    at memory speed, and only one that does not fit message by message (0.2 us each).
    """
    messages, owners = table.messages, table.select(int(Kind.PUBLISH))
    sizes = messages.column("meta_len").astype(np.int64) + messages.column("body_len")
    starts, crcs = messages.column("blob_at"), messages.column("crc")
    behind = np.cumsum(table.headers["count"][owners].astype(np.int64))
    firsts = np.concatenate((np.zeros(min(1, len(behind)), np.int64), behind[:-1]))
    ends = starts + sizes
    traces = _traces(len(table.raw), ends, crcs, behind - 1, is_short=int(sizes.min()) < _CRC_BYTES)
    view, found = memoryview(table.raw), [np.empty(0, np.int64)]
    places = (firsts, behind, starts[firsts], ends[behind - 1])
    for first, last, low, high in zip(*(one.tolist() for one in places), strict=True):
        whole = crc32c(bytes(_CRC_BYTES), crc32c(view[low:high], _ONES))
        if crc32c(traces[low : high + _CRC_BYTES]) != whole:
            mine = slice(first, last)
            bad = np.flatnonzero(_crcs(table.raw, starts[mine], ends[mine]) != crcs[mine])
            found.append(bad + first)
    return np.concatenate(found)


def _traces(size: int, ends: I64, crcs: Array, last: I64, *, is_short: bool) -> memoryview:
    """Zeros, but for what the CRC of each message leaves behind its end.

    With R for a CRC that begins at zero and inverts nothing: the state behind a message that begins
    at state S is R(message) ^ R(S, then zeros), and going on from a state is the same as going on
    from zero with that state in the next four bytes. The next message begins with all ones, and a
    CRC is stored inverted: inside a batch both take each other away. In front of the first message
    the ones are those that `crc32c` begins with itself.

    Args:
        size: of the piece that messages lie in.
        ends: of each message, in the piece.
        crcs: uint32[n], theirs.
        last: ordinals of the last message of each batch.
        is_short: some are shorter than a CRC, so that traces lie on one another.
    """
    left = crcs.astype("<u4")
    left[last] ^= np.uint32(_ONES)
    raw = np.zeros(size + _CRC_BYTES, np.uint8)
    columns = left.view(np.uint8).reshape(-1, _CRC_BYTES)
    for at in range(_CRC_BYTES):
        if is_short:
            np.bitwise_xor.at(raw, ends + at, columns[:, at])
        else:
            raw[ends + at] = columns[:, at]
    return raw.data


def _crcs(raw: bytes, starts: I64, ends: I64) -> NDArray[np.uint32]:
    """uint32[n]: CRC32C of some pieces; cut one by one, so that each is still in the cache."""
    cuts = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.fromiter((crc32c(raw[low:high]) for low, high in cuts), np.uint32, len(starts))
