import numpy as np

from hourwheel.client.message_ids import PublishedIds
from hourwheel.formats.message_id import MessageId

IDS = PublishedIds.of_batch(3, 7, 1 << 40, np.arange(1_000, 1_005))


def test_published_ids_when_used_as_a_sequence() -> None:
    expected = [MessageId(3, 7, (1 << 40) + n, 1_000 + n) for n in range(5)]
    assert list(IDS) == expected
    assert [IDS[index] for index in range(5)] == expected
    assert list(IDS[1:3]) == expected[1:3]
    assert IDS[-1] == expected[-1]
    assert len(IDS) == 5
    assert repr(IDS) == f"<PublishedIds 5: {expected[0]}, ...>"
    assert repr(IDS[:0]) == "<PublishedIds 0>"


def test_published_ids_when_printed_and_packed() -> None:
    assert IDS.texts() == [str(one) for one in IDS]
    assert IDS.packed().hex() == "".join(IDS.texts())


def test_published_ids_when_numpy_changed_the_byte_order() -> None:
    joined = np.concatenate([IDS.array, IDS.array])
    assert PublishedIds(joined).packed() == IDS.packed() * 2
