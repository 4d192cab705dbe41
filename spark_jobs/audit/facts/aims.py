"""For which queues a log has messages.

The master finds the topic, or makes it, before it stamps a batch; no node checks it after that. A
message for a queue that its topic does not have would be released to where no group reads.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from spark_jobs.logs.block_table import BlockTable

Array = NDArray[Any]
AIM: Final = np.dtype([("offset", "<u8"), ("sequence", "<u8"), ("topic_queue", "<u4")])
"""The first message of a piece of a log that is for a queue."""


def aims_of(table: BlockTable) -> Array:
    """AIM[n] of a piece of a log: one for each queue."""
    messages = table.messages
    if not len(messages):
        return np.empty(0, AIM)
    firsts = np.unique(messages.column("topic_queue"), return_index=True)[1]
    found = np.zeros(len(firsts), AIM)
    for name in AIM.names or ():
        found[name] = messages.column(name)[firsts]
    return found
