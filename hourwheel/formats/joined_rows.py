"""Rows of record batches, put together."""

from collections.abc import Sequence as Seq
from typing import Any

import numpy as np
from numpy.typing import NDArray


def join_rows(pieces: Seq[NDArray[Any]]) -> NDArray[Any]:
    """Rows of one dtype, at least one piece of them, one behind the other.

    As opaque items: numpy would first find the common type of all fields, in Python, for each.
    """
    if len(pieces) == 1:
        return pieces[0]
    dtype = pieces[0].dtype
    opaque = np.dtype((np.void, dtype.itemsize))
    return np.concatenate([np.ascontiguousarray(one).view(opaque) for one in pieces]).view(dtype)
