import random
from pathlib import Path

import pytest

from chaos.decay import KINDS, SHARD, Decay

RAW = bytes(range(1, 256)) * 400


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for pattern in KINDS.values():
        path = tmp_path / SHARD / pattern.replace("*", "one")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(RAW)
    return tmp_path


def differing(path: Path) -> int:
    return sum((one ^ other).bit_count() for one, other in zip(path.read_bytes(), RAW, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_bits_are_flipped_and_flipped_back(data: Path, kind: str) -> None:
    decay = Decay(random.Random(5))
    flips = decay.flip(data, kind, 20)
    (path,) = {one.path for one in flips}
    assert len(flips) == 20
    assert all(one.position >= 64 for one in flips)
    assert 10 < differing(path) <= 20
    assert decay.undo() == 20
    assert path.read_bytes() == RAW


def test_what_was_repaired_or_replaced_is_left_alone(data: Path) -> None:
    decay = Decay(random.Random(5))
    (one,) = decay.flip(data, "log")
    decay.flip(data, "run", 3)
    decay.flip(data, "queue", 1)
    one.path.write_bytes(RAW)  # the same file, repaired in place
    for path in (data / SHARD).glob("wheel/*.run"):
        path.unlink()
    (queue,) = (data / SHARD).glob("queues/*/*.cq")
    rotten = queue.read_bytes()
    other = queue.with_suffix(".new")
    other.write_bytes(rotten)
    other.rename(queue)
    assert decay.undo() == 0
    assert one.path.read_bytes() == RAW
    assert queue.read_bytes() == rotten


def test_nothing_is_flipped_where_there_is_nothing(tmp_path: Path) -> None:
    assert Decay(random.Random(5)).flip(tmp_path, "run", 3) == []
    (tmp_path / SHARD / "wheel").mkdir(parents=True)
    (tmp_path / SHARD / "wheel" / "a.run").write_bytes(RAW[:64] + bytes(500))
    assert Decay(random.Random(5)).flip(tmp_path, "run", 3) == []
