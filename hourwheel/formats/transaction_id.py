"""The printable transaction id: where its PREPARE record lies, in hexadecimal.

Shard (8 digits), epoch (8), offset of the record (16).
"""

import re
from typing import Final, NamedTuple, Self

from hourwheel import errors
from hourwheel.types import Epoch, Offset, ShardId

_TEXT: Final = re.compile("[0-9a-f]{32}")


class TransactionId(NamedTuple):
    """Names a transaction."""

    shard: ShardId
    epoch: Epoch
    offset: Offset

    def __str__(self) -> str:
        """The printable id."""
        return f"{self.shard:08x}{self.epoch:08x}{self.offset:016x}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InvalidArgument for a text that is no id."""
        if not _TEXT.fullmatch(text):
            raise errors.InvalidArgument("a transaction id has 32 hexadecimal digits", text=text)
        shard, epoch, offset = int(text[:8], 16), int(text[8:16], 16), int(text[16:], 16)
        return cls(ShardId(shard), Epoch(epoch), Offset(offset))
