"""dramatiq's own tests, with Hourwheel in the place of each of its brokers: a plugin of pytest.

What its source package lacks is here: fixtures, and what its tests import of `common`. Neither
Redis nor RabbitMQ is needed, nor a client for them, which the tests import all the same.
"""

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import MagicMock

import dramatiq
import pytest
from dramatiq.rate_limits.backends import StubBackend as StubRateLimits
from dramatiq.results.backends import StubBackend as StubResults

from hourwheel import Admin
from hourwheel.client.groups.dead_letters import DeadLetterMessage
from hourwheel.errors import UnknownGroup
from hourwheel.integrations.dramatiq import HourwheelBroker

_SERVER: Final = os.environ["SERVER"]
RABBITMQ_USERNAME: Final = "guest"
RABBITMQ_PASSWORD: Final = "guest"
RABBITMQ_CREDENTIALS: Final = None
for _client in ("redis", "pika", "pika.exceptions"):
    sys.modules[_client] = MagicMock()


def skip_on_windows(test: Any) -> Any:
    """This is none, and here is nothing else to be skipped."""
    return test


skip_on_pypy = skip_unless_rabbit_mq = skip_in_ci = skip_on_windows


class SuiteBroker(HourwheelBroker):
    """One whose queues are nobody else's; with what tests ask the library's own brokers."""

    def __init__(self) -> None:
        self.space = uuid.uuid4().hex
        super().__init__(_SERVER, group=self.space, namespace=self.space)

    def join(self, queue_name: str, *, timeout: int | None = None, **_: Any) -> None:  # type: ignore[override]
        super().join(queue_name, interval=10, timeout=timeout)

    @property
    def dead_letters(self) -> list[dramatiq.Message[Any]]:
        return [dramatiq.Message.decode(one.body) for one in self._list_dead_letters()]

    def _list_dead_letters(self) -> list[DeadLetterMessage]:
        with Admin(_SERVER) as admin:
            try:
                return list(admin.list_dead_letters(self.space))
            except UnknownGroup:
                return []

    def get_queue_message_counts(self, queue_name: str) -> tuple[int, int, int]:
        """Messages now, later, and dead letters."""
        with Admin(_SERVER) as admin:
            later = admin.count_pending(self.topic_of(queue_name)).matched_count
            lags = admin.get_group(self.space).lags
        now = sum(one.unresolved_count for one in lags if one.topic == self.topic_of(queue_name))
        return now, later, len(self._list_dead_letters())


@contextmanager
def worker(*arguments: Any, **settings: Any) -> Iterator[dramatiq.Worker]:
    found = dramatiq.Worker(*arguments, **settings)
    found.start()
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture
def stub_broker() -> Iterator[SuiteBroker]:
    broker = SuiteBroker()
    dramatiq.set_broker(broker)
    yield broker
    broker.close()


@pytest.fixture
def redis_broker(stub_broker: SuiteBroker) -> SuiteBroker:
    return stub_broker


@pytest.fixture
def rabbitmq_broker(stub_broker: SuiteBroker) -> SuiteBroker:
    return stub_broker


@pytest.fixture
def stub_worker(stub_broker: SuiteBroker) -> Iterator[dramatiq.Worker]:
    with worker(stub_broker, worker_timeout=100) as found:
        yield found


@pytest.fixture
def redis_worker(stub_worker: dramatiq.Worker) -> dramatiq.Worker:
    return stub_worker


@pytest.fixture
def rabbitmq_worker(stub_worker: dramatiq.Worker) -> dramatiq.Worker:
    return stub_worker


@pytest.fixture
def result_backend() -> StubResults:
    return StubResults()


@pytest.fixture
def redis_result_backend(result_backend: StubResults) -> StubResults:
    return result_backend


@pytest.fixture
def rate_limiter_backend() -> StubRateLimits:
    return StubRateLimits()
