"""Dedup keys in memory and in a checkpoint."""

import numpy as np
import pytest

from hourwheel.errors import CorruptFile
from storage.views.dedup_keys import PARTS, DedupKeys, pack_names, pack_parts


def names_of(*numbers: int) -> list[bytes]:
    high = np.array([one * 0x9E37_79B9 for one in numbers], np.uint64)
    return pack_names(np.full(len(numbers), 3, np.uint32), high, high + np.uint64(1))


def test_rows_when_put_again_are_those_of_the_last() -> None:
    keys = DedupKeys()
    first, second = names_of(1, 2)
    keys.put({first: 10, second: 11})
    keys.put({first: 12})
    assert keys.count == 2
    assert keys.find([second, first, *names_of(3)]) == [11, 12, None]
    assert sorted(keys.sequences().tolist()) == [11, 12]


def test_capture_when_rows_change_later_stays_as_it_was() -> None:
    keys = DedupKeys()
    names = names_of(*range(3_000))
    keys.put({name: at for at, name in enumerate(names)})
    captured = keys.capture()
    keys.put({names[0]: 9_000, names_of(9_999)[0]: 9_001})
    for part in range(PARTS):
        keys.forget(part, lambda sequences: sequences >= 2_999)
    assert keys.count == 3
    again = DedupKeys(pack_parts(captured))
    assert again.count == 3_000
    assert again.find(names) == list(range(3_000))


def test_rows_when_they_are_none_are_refused() -> None:
    keys = DedupKeys()
    keys.put(dict.fromkeys(names_of(1), 5))
    raw = pack_parts(keys.capture())
    for bad in (raw[:-1], raw + raw):
        with pytest.raises(CorruptFile):
            DedupKeys(bad)
