"""Which messages of a publish count, and what their producers are told."""

from typing import cast

import pytest

from hourwheel import errors
from hourwheel.formats.record_batch import RecordBatch, build_publish
from hourwheel.formats.tag_gene import (
    DEFAULT_SPEC,
    GENE_SPEC_OF_TOPIC,
    GENE_UNKNOWN,
    GeneKind,
    GeneSpec,
)
from node.shard.deduplication import Mask, Published, PublishResults, genes_of
from tests.support.court import DELETED, EPOCH, STORE_MS, TOPIC, Court


def new(base_sequence: int, count: int) -> Published:
    return Published(EPOCH, base_sequence, count, STORE_MS)


def again(base_sequence: int, count: int) -> Published:
    return Published(EPOCH, base_sequence, count, STORE_MS, duplicate=True)


def kinds(results: PublishResults) -> dict[int, type]:
    return {at: type(result) for at, result in results.items()}


def masked(mask: Mask | None) -> list[bool]:
    assert mask is not None
    return cast(list[bool], mask.tolist())


def test_everything_counts_when_nobody_published_it() -> None:
    court = Court()
    assert court.publish(3) == ({0: new(100, 3)}, None)
    assert court.publish(3) == ({0: new(103, 3)}, None)


def test_a_producers_batches_count_in_their_order() -> None:
    court = Court()
    assert court.publish(3, 9, 0) == ({0: new(100, 3)}, None)
    assert court.publish(2, 9, 3) == ({0: new(103, 2)}, None)


def test_a_duplicate_is_told_where_the_first_copy_is() -> None:
    court = Court()
    court.publish(3, 9, 0)
    court.publish(4, 8, 0)
    results, mask = court.publish(3, 9, 0)
    assert results == {0: again(100, 3)}
    assert masked(mask) == [False] * 3
    results, _ = court.publish(1, 8, 2)
    assert results == {0: again(105, 1)}, "a part of it is known as well"


def test_out_of_order_is_refused_and_not_remembered() -> None:
    court = Court()
    court.publish(3, 9, 0)
    for first, count in ((4, 1), (2, 2)):
        results, mask = court.publish(count, 9, first)
        assert kinds(results) == {0: errors.OutOfOrderSequence}
        assert masked(mask) == [False] * count
    assert court.publish(1, 9, 3)[1] is None, "its next number is what it was"


def test_an_unknown_producer_must_begin_with_number_0() -> None:
    court = Court()
    results, mask = court.publish(2, 9, 5)
    assert kinds(results) == {0: errors.UnknownProducer}
    assert masked(mask) == [False, False]
    assert len(court.producers) == 0
    assert court.publish(2, 9, 0)[1] is None


def test_a_deleted_topic_is_refused_before_its_producer_is_heard() -> None:
    court = Court()
    results, mask = court.publish(2, 9, 0, topic=DELETED)
    assert kinds(results) == {0: errors.UnknownTopic}
    assert masked(mask) == [False, False]
    assert court.publish(2, 9, 0) == ({0: new(102, 2)}, None)


def test_merged_requests_are_judged_one_by_one() -> None:
    court = Court()
    court.publish(2, 7, 0)
    results, mask = court.merged([7, 7, 8, 9, 0, 0], [0, 1, 0, 5, 0, 0])
    assert masked(mask) == [False, False, True, False, True, True]
    assert results.pop(3).__class__ is errors.UnknownProducer
    assert results == {0: again(100, 2), 2: new(104, 1), 4: new(106, 1), 5: new(107, 1)}


def test_merged_requests_have_no_mask_when_all_count() -> None:
    results, mask = Court().merged([7, 7, 0, 8], [0, 1, 0, 0])
    assert mask is None
    assert results == {0: new(100, 2), 2: new(102, 1), 3: new(103, 1)}


def test_merged_request_is_refused_whole_when_it_is_partly_known() -> None:
    court = Court()
    court.publish(2, 7, 0)
    results, mask = court.merged([8, 7, 7], [0, 1, 2])
    assert kinds(results) == {0: Published, 1: errors.OutOfOrderSequence}
    assert masked(mask) == [True, False, False]
    assert court.merged([7], [2])[1] is None, "its next number is what it was"


def test_merged_requests_are_refused_when_their_own_topic_is_deleted() -> None:
    court = Court()
    results, mask = court.merged([7, 7, 8, 0], [0, 1, 0, 0], [DELETED, DELETED, TOPIC, DELETED])
    assert kinds(results) == {
        0: errors.UnknownTopic,
        2: Published,
        3: errors.UnknownTopic,
    }
    assert masked(mask) == [False, False, True, False]
    assert court.publish(1, 7, 0)[1] is None, "it was not heard"


def test_what_was_merged_is_known_when_it_comes_alone() -> None:
    court = Court()
    court.merged([0, 7, 7], [0, 0, 1])
    assert court.publish(2, 7, 0)[0] == {0: again(101, 2)}


# -- genes ----------------------------------------------------------------------------------------


OTHER_SPEC = GeneSpec(GeneKind.BLOOM)
UNKNOWN = [GENE_UNKNOWN, 0, GENE_UNKNOWN]
OWN = [5, 6, 7]


@pytest.mark.parametrize(
    ("number", "topic", "merged", "genes"),
    [
        (DEFAULT_SPEC.number, TOPIC, False, OWN),
        (OTHER_SPEC.number, TOPIC, False, UNKNOWN),
        (0, TOPIC, False, UNKNOWN),
        (DEFAULT_SPEC.number, DELETED, False, UNKNOWN),
        (GENE_SPEC_OF_TOPIC, TOPIC, False, OWN),
        (GENE_SPEC_OF_TOPIC, TOPIC, True, OWN),
        (DEFAULT_SPEC.number, TOPIC, True, UNKNOWN),
        (0, TOPIC, True, UNKNOWN),
    ],
)
def test_genes_count_when_they_were_made_as_the_topic_wants_them(
    number: int, topic: int, *, merged: bool, genes: list[int]
) -> None:
    raw = build_publish(
        [0] * 3,
        [b""] * 3,
        metas=[b"meta", b"", b"meta"],
        tag_genes=OWN,
        topic_queues=[topic << 8] * 3,
        gene_spec=number,
        message_producers=([0] * 3, [0] * 3) if merged else None,
    )
    assert genes_of(Court().views.catalog, RecordBatch(raw)).tolist() == genes
