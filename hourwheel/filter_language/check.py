"""The client's own check of what a node hands out: which messages of an answer match a filter."""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.crc32c import crc32c
from hourwheel.filter_language.evaluate import matches
from hourwheel.filter_language.text import FilterExpression, parse
from hourwheel.filter_language.tree import EVERYTHING
from hourwheel.formats import meta as metas
from hourwheel.formats.delivery_batch import DeliveryBatch

_CACHED: Final = 4_096
_CACHED_BYTES_MAX: Final = 256
"""Answers are kept by the bytes of the metadata, short ones only: 1 MiB at most."""


class FilterCheck:
    """Checks answers against one filter."""

    def __init__(self, expression: FilterExpression) -> None:
        """Read the filter.

        Raises:
            InvalidFilter: it cannot be understood.
            FailedPrecondition: what reading it needs is not installed.
        """
        self.expression = expression
        self._tree = parse(expression)
        self._matches_cached = lru_cache(maxsize=_CACHED)(self._matches)

    def find_mask(self, delivery: DeliveryBatch) -> NDArray[np.bool_] | None:
        """bool[n]: which messages match; None: all do.

        A message whose bytes are damaged counts as one that matches: to read it raises, and
        it is not acknowledged by mistake.
        """
        if self._tree == EVERYTHING:
            return None
        sizes = delivery.meta_len.tolist()
        ends = delivery.blob_ends()
        starts = ends - delivery.body_len - delivery.meta_len
        raw = delivery.buffer
        answers = [
            self._matches_cached(raw[at : at + size])
            if size <= _CACHED_BYTES_MAX
            else self._matches(raw[at : at + size])
            for at, size in zip(starts.tolist(), sizes, strict=True)
        ]
        mask: NDArray[np.bool_] = np.array(answers, np.bool_)
        view, crc = memoryview(raw), delivery.crc
        for index in np.flatnonzero(~mask).tolist():
            mask[index] = crc32c(view[starts[index] : ends[index]]) != crc[index]
        return None if mask.all() else mask

    def _matches(self, raw: bytes) -> bool:
        try:
            meta = metas.decode(raw)
        except errors.InvalidArgument:
            meta = metas.NO_META
        return matches(self._tree, meta.tags, meta.properties)
