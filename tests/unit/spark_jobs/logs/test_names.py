"""Names come from checkpoints and from the log behind them, and fit together."""

from pathlib import Path

from hourwheel.internal.v1 import state_pb2 as wire
from spark_jobs.logs.discovery import discover
from spark_jobs.logs.names import Names, read_names
from tests.support.audited import copied
from tests.support.log_maker import GROUPS, TOPICS, Made


def test_names_when_read_are_those_of_the_checkpoint(made: Made) -> None:
    names = read_names(discover([str(made.directory)]), 0)
    assert set(TOPICS) <= set(names.topics.values())
    assert set(GROUPS) == set(names.groups.values())
    assert names.topics[names.topic_ids("orders")[0]] == "orders"
    assert names.topic_ids("absent") == []


def test_names_when_there_is_no_checkpoint_come_from_the_log(made: Made, tmp_path: Path) -> None:
    directory = copied(made.directory, tmp_path)
    (directory / "shard-0" / "checkpoint").unlink()
    expected = read_names(discover([str(made.directory)]), 0)
    assert read_names(discover([str(directory)]), 0) == expected


def test_names_when_a_record_cannot_be_read_are_the_others() -> None:
    names = Names()
    names.learn(b"\xff\xff")
    names.learn(wire.ConfigChange(delete_topic_id=3).SerializeToString())
    assert names == Names()
    for topic_id in (3, 9):
        topic = wire.TopicConfig(topic_id=topic_id, name="a")
        names.learn(wire.ConfigChange(put_topic=topic).SerializeToString())
    assert names.topic_ids("a") == [3, 9]
