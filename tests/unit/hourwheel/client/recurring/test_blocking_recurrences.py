from datetime import timedelta

from hourwheel.client.blocking import Admin
from hourwheel.client.message import Message
from hourwheel.client.recurring.recurrences import Times
from tests.support.fake_node_thread import FakeNodeThread


def test_blocking_admin_when_messages_recur() -> None:
    times = Times(every=timedelta(minutes=1))
    with FakeNodeThread() as fake, Admin(fake.address) as admin:
        assert admin.put_recurrence("orders", "a", Message(b""), times, expected_version=0)
        assert admin.get_recurrence("orders", "a") == admin.recurrences("orders")[0]
        admin.pause_recurrence("orders", "a")
        admin.resume_recurrence("orders", "a")
        assert len(admin.next_times("orders", "a")) == 10
        admin.delete_recurrence("orders", "a")
        assert admin.recurrences() == []
