"""The programs of the guides for those who come from elsewhere are programs."""

import sys
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from dramatiq.brokers.stub import StubBroker

from hourwheel.testing import Broker, Clock
from tests.support.guide_commands import fenced


def run(page: str) -> dict[str, Any]:
    """What the program of a page defines; it connects to nothing."""
    return execute(fenced(page, "python")[0], "shop")


def execute(program: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": name}
    exec(compile(program, name, "exec"), found)
    return found


def test_program_of_celery_has_its_task_and_its_broker() -> None:
    found = run("docs/guides/from-celery.md")
    assert found["app"].conf.broker_url == "hourwheel://127.0.0.1:7400"
    assert found["app"].connection_for_write().transport_cls == "hourwheel"
    assert "shop.close_unpaid" in found["app"].tasks


def test_program_of_dramatiq_has_its_actor() -> None:
    found = run("docs/guides/from-dramatiq.md")
    assert found["close_unpaid"].options["max_retries"] == 3
    assert found["dramatiq"].get_broker().get_declared_queues() == {"default"}


def test_program_for_all_others_has_its_handler(capsys: pytest.CaptureFixture[str]) -> None:
    found = run("docs/guides/from-others.md")
    found["close_unpaid"]({"id": 17})
    assert capsys.readouterr().out == "closing order 17\n"
    assert [one.topic for one in found["app"].handlers] == ["unpaid"]


@pytest.mark.parametrize(
    ("at", "library", "calls"),
    [
        (1, "rq_scheduler", ["Scheduler().enqueue_in", "Scheduler().cancel"]),
        (2, "boto3", ["client().send_message"]),
        (3, "boto3", ["client().create_schedule", "client().delete_schedule"]),
        (4, "redis", ["Redis().zadd", "Redis().zrem"]),
        (5, "pika", ["BlockingConnection().channel().basic_publish"]),
    ],
)
def test_programs_from_before_are_programs(
    at: int, library: str, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They call what they say they come from: with libraries that take anything."""
    for name in ("rq_scheduler", "redis", "boto3", "pika"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    programs = fenced("docs/guides/from-others.md", "python")
    assert len(programs) == 6
    found = execute(programs[at], "before")
    assert callable(found.get("work", found.get("close_unpaid")))
    made = sys.modules[library]
    assert isinstance(made, MagicMock)
    made.reset_mock()
    found["ordered"](17)
    found["paid"](17)
    assert [name for name, *_ in made.mock_calls if name.endswith(tuple(calls))] == calls


def test_program_of_apscheduler_runs_its_jobs(
    hourwheel_broker: Broker, hourwheel_clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run("docs/guides/from-apscheduler.md")
    hourwheel_broker.run(found["app"])
    for order_id in (17, 18):
        found["schedule"](order_id, datetime(2030, 1, 1, 0, 5, tzinfo=UTC))
    found["postpone"](17, datetime(2030, 1, 1, 1, 55, tzinfo=UTC))
    found["drop"](18)
    hourwheel_clock.advance("119m")
    looks = ["looking at feeds"] * 11
    assert capsys.readouterr().out.splitlines() == [*looks, "reminding of order 17"]
    hourwheel_clock.advance("2m")  # three o'clock in Berlin
    assert sorted(capsys.readouterr().out.splitlines()) == ["a report", "looking at feeds"]


def test_programs_beside_ours_in_the_first_hour_are_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of Celery and dramatiq at Redis, which is not needed to read them."""
    _, celery, dramatiq = fenced("docs/guides/first-hour.md", "python")
    app = execute(celery, "first")["app"]  # Celery knows the tasks of "shop" from another page
    (entry,) = app.conf.beat_schedule.values()
    assert entry["task"].replace("shop.", "first.") in app.tasks

    broker = StubBroker()
    redis = SimpleNamespace(RedisBroker=lambda *, url: broker)
    monkeypatch.setitem(sys.modules, "dramatiq.brokers.redis", redis)
    actor = execute(dramatiq, "__main__")["close_unpaid"]
    (queue,) = (broker.queues[name] for name in broker.get_declared_delay_queues())
    assert (actor.queue_name, queue.qsize()) == ("default", 1)
