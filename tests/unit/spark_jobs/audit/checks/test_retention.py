"""What TRIM records let go of, topic by topic."""

import numpy as np

from hourwheel.internal.v1.state_pb2 import (
    ConfigChange,
    GroupConfig,
    Subscription,
    TopicConfig,
)
from node.shard.views import RETENTION_LEVEL
from spark_jobs.audit.checks.catalog import Timeline, build_timeline
from spark_jobs.audit.checks.retention import LEVEL, Trims
from spark_jobs.audit.facts.records import TRIM
from spark_jobs.audit.facts.scan import Blob
from storage.views.catalog_names import retry_topic_name


def topic(number: int, name: str, retention_ms: int = 0, *, internal: bool = False) -> ConfigChange:
    return ConfigChange(
        put_topic=TopicConfig(
            topic_id=number,
            name=name,
            queue_count=1,
            internal=internal,
            retention_ms=retention_ms,
        )
    )


def line_of(*changes: ConfigChange) -> Timeline:
    blobs = [Blob(100 * at, 1, 0, 0, one.SerializeToString()) for at, one in enumerate(changes, 1)]
    return build_timeline(blobs, None, 0)


LINE = line_of(
    topic(1, "orders"),
    topic(2, "bills"),
    topic(3, retry_topic_name("g", "orders"), internal=True),
    ConfigChange(put_group=GroupConfig(group_id=1, name="g", attempts_max=3)),
    ConfigChange(put_subscription=Subscription(group_id=1, topic_id=1, retry_topic_id=3)),
    topic(1, "orders", 70),
    topic(1, "orders"),
)
ROWS = np.array([(550, 10, 1_000), (650, 20, 2_000), (750, 30, 3_000)], TRIM)


def test_level_is_the_nodes() -> None:
    assert LEVEL == RETENTION_LEVEL


def test_topic_and_its_retries_go_by_what_it_has_of_its_own_while_it_has_that() -> None:
    trims = Trims(ROWS, LINE, [(0, LEVEL)])
    assert trims.of(1) == [(550, 10), (650, 1_930), (750, 30)]
    assert trims.of(3) == trims.of(1)
    assert trims.of(2) == [(550, 10), (650, 20), (750, 30)]
    assert trims.of(77) == trims.of(2)


def test_records_of_an_earlier_level_say_it_of_all_topics() -> None:
    for levels in ([], [(0, LEVEL - 1)], [(0, LEVEL - 1), (700, LEVEL)]):
        assert Trims(ROWS, LINE, levels).of(1) == [(550, 10), (650, 20), (750, 30)]
