import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.filter_language.check import FilterCheck
from hourwheel.filter_language.evaluate import matches
from hourwheel.filter_language.inputs import Sql, Tags
from hourwheel.filter_language.text import parse
from hourwheel.formats.delivery_batch import DeliveryBatch
from hourwheel.formats.meta import NO_META, MessageMeta, encode
from tests.support.received import received

PAID = MessageMeta(tags=("paid",), keys=("k1",))
PAID_TEST = MessageMeta(tags=("paid", "test"))
RICH = MessageMeta(properties=(("amount", "500"), ("region", "eu")))
METAS = [NO_META, PAID, PAID_TEST, RICH, PAID]


def delivery(*metas: MessageMeta, damage: int | None = None) -> DeliveryBatch:
    return received([(encode(meta).raw, b"body") for meta in metas], damage=damage).delivery


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (Tags("paid && !test"), [False, True, False, False, True]),
        (Tags("!paid"), [True, False, False, True, False]),
        (Sql("amount > 100"), [False, False, False, True, False]),
        (Sql("amount IS NULL"), [True, True, True, False, True]),
        (Tags("nobody"), [False] * 5),
    ],
)
def test_find_mask_when_some_match(expression: Tags, expected: list[bool]) -> None:  # type: ignore[valid-type]
    mask = FilterCheck(expression).find_mask(delivery(*METAS))
    assert mask is not None
    assert mask.dtype == np.bool_
    assert mask.tolist() == expected


def test_find_mask_when_all_match() -> None:
    assert FilterCheck(Tags("*")).find_mask(delivery(*METAS)) is None
    assert FilterCheck(Tags("paid || !paid")).find_mask(delivery(*METAS)) is None
    assert FilterCheck(Tags("paid")).find_mask(delivery(PAID, PAID_TEST)) is None


def test_find_mask_when_a_message_is_damaged() -> None:
    raw = encode(PAID).raw
    batch = received([(raw, b"one"), (raw, b"two")]).delivery
    at = batch.blob_offset + raw.index(b"paid")
    damaged = DeliveryBatch(batch.buffer[:at] + b"q" + batch.buffer[at + 1 :])
    assert FilterCheck(Tags("nobody")).find_mask(damaged).tolist() == [True, False]  # type: ignore[union-attr]
    assert FilterCheck(Tags("paid")).find_mask(damaged) is None


def test_find_mask_when_metadata_cannot_be_read() -> None:
    unreadable = received([(b"\x0a\x7f", b"one"), (encode(PAID).raw, b"two")]).delivery
    mask = FilterCheck(Tags("paid")).find_mask(unreadable)
    assert mask is not None
    assert mask.tolist() == [False, True]
    assert FilterCheck(Tags("!test")).find_mask(unreadable) is None


def test_find_mask_when_metadata_is_long() -> None:
    long = MessageMeta(tags=tuple(f"tag-{n}" for n in range(64)))
    mask = FilterCheck(Tags("'tag-63' && !x")).find_mask(delivery(long, PAID))
    assert mask is not None
    assert mask.tolist() == [True, False]


@given(
    st.lists(
        st.builds(
            MessageMeta,
            tags=st.lists(st.sampled_from("abc"), unique=True).map(tuple),
            properties=st.dictionaries(st.sampled_from("pq"), st.sampled_from("12x")).map(
                lambda pairs: tuple(pairs.items())
            ),
        ),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(
        [Tags("a && !b || c"), Tags("!(a || b)"), Sql("p > 1 OR q = 'x'"), Sql("NOT (p = 1)")]
    ),
)
def test_find_mask_when_compared_with_each_message(
    metas: list[MessageMeta],
    expression: Tags,  # type: ignore[valid-type]
) -> None:
    mask = FilterCheck(expression).find_mask(delivery(*metas))
    expected = [matches(parse(expression), meta.tags, meta.properties) for meta in metas]
    assert ([True] * len(metas) if mask is None else mask.tolist()) == expected


@pytest.mark.parametrize("expression", [Tags("a ||"), Sql("a = "), Sql("a LIKE 'x'")])
def test_check_when_the_filter_is_malformed(expression: Tags) -> None:  # type: ignore[valid-type]
    with pytest.raises(errors.InvalidFilter) as refused:
        FilterCheck(expression)
    assert int(refused.value.params["position"]) <= len("a LIKE 'x'")


def test_check_when_lark_is_not_installed() -> None:
    code = (
        "import sys; sys.modules['lark'] = None\n"
        "from hourwheel import AsyncConsumer, Sql, errors\n"
        "AsyncConsumer(group='g', topic='t', filter='a && b')\n"
        "AsyncConsumer(group='g', topic='t', filter=Sql('*', check_at_client=False))\n"
        "try:\n"
        "    AsyncConsumer(group='g', topic='t', filter=Sql('a = 1', check_at_client=True))\n"
        "except errors.FailedPrecondition as error:\n"
        "    print(error.message)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "hourwheel[filters]" in done.stdout
