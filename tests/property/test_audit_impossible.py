"""Records that no master writes are named, though replicas agree and all checksums are right."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hourwheel.formats.record_batch import (
    TRIM_ROW,
    Kind,
    build_publish,
    build_rows,
)
from tests.support.audit_faults import copies, roots
from tests.support.audit_runs import run_audit
from tests.support.log_copies import Cluster, Expected, changed, log_file
from tests.support.log_maker import make_log, replicate

_FAR_TOPIC = 7_777
_QUEUE_THAT_IS_NOT_THERE = 200


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three replicas of a log that nobody may change."""
    place = tmp_path_factory.mktemp("nodes") / "node-1"
    return replicate(asyncio.run(make_log(place, seed=1, rounds=2, ordered=True)).directory)


def publish_to(cluster: Cluster, topic_queue: int) -> list[Expected]:
    """A message is accepted for a queue that nobody reads."""
    due_ms = np.array([cluster.batches[-1].header.store_ms + 3_600_000])
    queues = np.array([topic_queue], "<u4")
    raw = build_publish(due_ms.tolist(), [b"lost"], topic_queues=queues)
    sequence = cluster.model.next_sequence
    offset = cluster.append(raw, due_ms=due_ms, queues=queues)
    return [Expected("queue-absent", offset=offset, sequence=sequence)]


def publish_to_no_topic(cluster: Cluster) -> list[Expected]:
    return publish_to(cluster, _FAR_TOPIC << 8)


def publish_to_no_queue(cluster: Cluster) -> list[Expected]:
    topic_id = cluster.own_queues()[0] >> 8
    return publish_to(cluster, topic_id << 8 | _QUEUE_THAT_IS_NOT_THERE)


def trim_the_future(cluster: Cluster) -> list[Expected]:
    """Retention lets go of what is released tomorrow."""
    rows = np.array([(cluster.batches[-1].header.store_ms + 86_400_000,)], TRIM_ROW)
    return [Expected("record-impossible", offset=cluster.append(build_rows(Kind.TRIM, rows)))]


def begin_no_epoch(cluster: Cluster) -> list[Expected]:
    """The last record is of a later epoch that nobody has begun."""
    cluster.append(build_rows(Kind.TRIM, np.zeros(1, TRIM_ROW)))
    again = Cluster(cluster.nodes)
    last = again.batches[-1]
    again.put(last, changed(last, epoch=last.header.epoch + 1))
    node, offset = cluster.nodes[0], last.header.offset
    return [Expected("epoch-start", node.name, log_file(node, offset), offset)]


@pytest.mark.parametrize(
    "plant",
    [
        publish_to_no_topic,
        publish_to_no_queue,
        trim_the_future,
        begin_no_epoch,
    ],
)
def test_record_that_no_master_writes_is_all_that_is_named(
    nodes: list[Path], tmp_path: Path, plant: Callable[[Cluster], list[Expected]]
) -> None:
    broken = copies(nodes, tmp_path)
    expected = plant(Cluster(broken))
    assert roots(run_audit(*broken)) == expected
