from hourwheel.client.blocking import Producer
from hourwheel.formats.message_id import MessageId
from hourwheel.outcomes import RescheduleOutcome
from tests.support.fake_node import EPOCH, SHARD
from tests.support.fake_node_thread import FakeNodeThread

RESCHEDULED, UNKNOWN = RescheduleOutcome.RESCHEDULED, RescheduleOutcome.UNKNOWN
LATER_MS = 2_000_000_000_000


def test_blocking_producer_when_it_moves() -> None:
    with FakeNodeThread() as fake, Producer(fake.address) as producer:
        fake.add_topic("t", b"0", b"1")
        first, second = (MessageId(SHARD, EPOCH, sequence, 5) for sequence in range(2))
        assert producer.reschedule(first, due_ms=LATER_MS).outcome is RESCHEDULED
        found = producer.reschedule_many([first, second], delay_ms=[1, 2])
        assert [one.due_ms for one in found] == [1, 2]
        assert producer.reschedule_by_key("t", "k", delay_ms=1).outcome is UNKNOWN
        assert len(producer.reschedule_by_keys("t", ["k", "l"], due_ms=LATER_MS)) == 2
