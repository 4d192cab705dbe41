"""What existed where in the log."""

from hourwheel.internal.v1.state_pb2 import (
    Checkpoint,
    ConfigChange,
    GroupConfig,
    Subscription,
    TopicConfig,
)
from spark_jobs.audit.checks.catalog import FOREVER, Life, Timeline, build_timeline
from spark_jobs.audit.facts.scan import Blob
from storage.views.catalog_names import dead_letter_topic_name, retry_topic_name


def line_of(*changes: ConfigChange, manifest: Checkpoint | None = None) -> Timeline:
    blobs = [Blob(100 * at, 1, 0, 0, one.SerializeToString()) for at, one in enumerate(changes, 1)]
    return build_timeline(blobs, manifest, 0, is_whole=manifest is None)


def topic(number: int, name: str, *, internal: bool = False) -> ConfigChange:
    config = TopicConfig(topic_id=number, name=name, queue_count=1, internal=internal)
    return ConfigChange(put_topic=config)


def group(attempts_max: int) -> ConfigChange:
    config = GroupConfig(group_id=1, name="g", attempts_max=attempts_max, dead_letter_topic_id=3)
    return ConfigChange(put_group=config)


CHANGES = (
    topic(1, "orders"),
    topic(2, retry_topic_name("g", "orders"), internal=True),
    topic(3, dead_letter_topic_name("g"), internal=True),
    group(3),
    ConfigChange(put_subscription=Subscription(group_id=1, topic_id=1, retry_topic_id=2)),
    group(5),
    ConfigChange(delete_topic_id=1),
)


def test_lives_are_from_record_to_record() -> None:
    line = line_of(*CHANGES)
    assert line.topics[1] == Life(100, 700)
    assert line.topics[2] == Life(200, 700)  # retries go with their topic
    assert line.topics[3] == Life(300, FOREVER)
    assert line.deleted == {1: 700, 2: 700}
    assert line.internal == {0, 2, 3}  # 0: what internal topics that are gone were written to
    born, died = line.lives()
    assert (born[1], died[1]) == (100, 700)
    assert len(born) == 3, "nobody publishes to the cluster's own"
    assert int(born[-1]) == FOREVER  # a topic that nobody made
    assert line.name_of(1) == "orders"
    assert line.name_of(77) == "#77"


def test_group_and_subscription_are_as_a_record_sees_them() -> None:
    line = line_of(*CHANGES)
    attempts = [getattr(line.group_at(1, at), "attempts_max", None) for at in (400, 401, 601)]
    assert attempts == [None, 3, 5]
    assert line.subscription_at(1, 1, 500) is None
    assert line.subscription_at(1, 1, 501) is not None
    assert line.subscription_at(1, 2, 501) == line.subscription_at(1, 1, 501)
    assert line.subscription_at(1, 1, 701) is None


def test_change_when_it_is_void_changes_nothing() -> None:
    line = line_of(topic(1, "orders"), topic(1, "other"))
    assert line.names == {1: "orders"}


def test_change_when_nobody_knows_it_is_a_finding() -> None:
    blob = Blob(80, 1, 0, 0, b"\xff\xff")
    assert [one.check for one in build_timeline([blob], None, 0).findings] == ["kind-unknown"]


def test_log_when_its_beginning_is_gone_has_what_a_checkpoint_has() -> None:
    manifest = Checkpoint(topics=[CHANGES[0].put_topic, CHANGES[1].put_topic])
    line = line_of(ConfigChange(delete_topic_id=1), manifest=manifest)
    assert line.topics[1] == Life(0, 100)
    assert int(line.lives()[0][-1]) == 0


def test_change_when_nobody_knows_it_is_a_finding_of_a_trimmed_log_too() -> None:
    blobs = [Blob(800, 1, 5, 0, b"\xff"), Blob(900, 1, 5, 0, topic(1, "b").SerializeToString())]
    line = build_timeline(blobs, Checkpoint(), 0, is_whole=False)
    assert [(one.check, one.offset) for one in line.findings] == [("kind-unknown", 800)]
    assert line.names == {1: "b"}
