"""The heap of Spark's Python workers."""

import gc


def settle_heap() -> None:
    """Take what a worker has imported out of the garbage collector's sight, once for each worker.

    Spark's daemon collects garbage after every task, and a walk over all that pyspark, numpy and
    pyarrow have made takes longer (7 ms) than most of our tasks' own overhead.
    """
    if not gc.get_freeze_count():
        gc.freeze()
