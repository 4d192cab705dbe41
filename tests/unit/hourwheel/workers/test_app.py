import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hourwheel.errors import Cancelled, FailedPrecondition, InvalidArgument, InvalidDueTime
from hourwheel.outcomes import IfPending
from hourwheel.workers.app import App, load_app, make_message
from hourwheel.workers.command import WorkerOptions, run_worker
from hourwheel.workers.program import Program
from hourwheel.workers.results import Retry
from hourwheel.workers.worker import tell_of_connection
from tests.support.eventually import until


def handle(order: dict[str, int]) -> None: ...


def test_a_handler_stays_a_function_and_is_registered() -> None:
    app = App(group="shop")
    assert app.handler("orders", time_limit=timedelta(seconds=3))(handle) is handle
    (handler,) = app.handlers
    assert (handler.topic, handler.group, handler.time_limit_ms) == ("orders", "shop", 3_000)


@pytest.mark.parametrize(
    "settings",
    [
        {"group": ""},
        {"concurrency": 0},
        {"time_limit": -1},
        {"invisible": 1.5},
        {"invisible": "50d"},
    ],
)
def test_a_handler_that_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        App(group="" if "group" in settings else "shop").handler("orders", **settings)(handle)


def test_two_handlers_of_one_group_and_topic_are_refused() -> None:
    app = App(group="shop")
    app.handler("orders")(handle)
    app.handler("orders", group="other")(handle)
    with pytest.raises(InvalidArgument, match="which one"):
        app.handler("orders")(handle)


def test_the_server_is_the_environments_where_the_program_says_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert App().server == "127.0.0.1:7400"
    monkeypatch.setenv("HOURWHEEL_SERVER", "a:1,b:2")
    assert App().server == "a:1,b:2"
    assert App("c:3").server == "c:3"


def test_all_threads_have_one_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    class Slow:
        def __init__(self, *_: object, **__: object) -> None:
            threading.Event().wait(0.02)
            made.append(self)

        def close(self) -> None:
            made.remove(self)

    monkeypatch.setattr("hourwheel.workers.app.Producer", Slow)
    app = App()
    with ThreadPoolExecutor(8) as threads:
        found = {threads.submit(lambda: app.producer) for _ in range(8)}
        assert len({id(one.result()) for one in found}) == 1
    app.close()
    assert made == []


def test_messages_are_made_of_what_a_program_says() -> None:
    message = make_message({"id": 17}, in_="30m", key="order-17", tags=["eu"])
    assert (message.body, message.delay_ms) == (b'{"id":17}', 1_800_000)
    assert (message.keys, message.content_type) == (["order-17"], "application/json")
    assert make_message(b"x", in_=timedelta(seconds=1)).delay_ms == 1_000
    assert make_message("x", at=datetime(2027, 1, 1, tzinfo=UTC)).due_ms == 1_798_761_600_000
    assert make_message("x").delay_ms is None
    pending = make_message("x", dedup_key="d", if_pending=IfPending.KEEP, ordering_key="o")
    found = pending.dedup_key, pending.if_pending, pending.ordering_key, pending.priority
    assert found == ("d", IfPending.KEEP, "o", 0)
    assert make_message("x", in_=timedelta(days=90)).delay_ms == 90 * 86_400_000
    zero: Any = 0
    assert make_message("x", in_=zero).delay_ms == 0
    assert make_message("x", priority=9).priority == 9
    assert make_message("x", expires=timedelta(minutes=5)).expire_after_ms == 300_000


@pytest.mark.parametrize(
    "in_", ["30", "tomorrow", "2027-01-01T00:00:00Z", "-1s", timedelta(-1), -1, b"1s", True]
)
def test_a_delay_that_is_none_is_refused(in_: Any) -> None:
    with pytest.raises(InvalidDueTime):
        make_message("x", in_=in_)


@pytest.mark.parametrize(("number", "said"), [(3, "in_='3s'"), (2.5, "in_='2.5s'")])
def test_a_number_without_a_unit_is_refused_and_how_to_write_it_is_said(
    number: Any, said: str
) -> None:
    with pytest.raises(InvalidDueTime, match=said):
        make_message("x", in_=number)
    with pytest.raises(InvalidDueTime, match="delay='"):
        Retry(delay=number)
    with pytest.raises(InvalidDueTime, match="time_limit='"):
        App(group="shop").handler("orders", time_limit=number)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"countdown": 30}, "in_='30s'"),
        ({"eta": datetime(2027, 1, 1, tzinfo=UTC)}, "at="),
        ({"delay": 1_000}, "in_="),
        ({"args": (17,)}, "payload"),
        ({"task_id": "order-17"}, "key="),
        ({"delay_ms": 1_000}, "in_="),
        ({"keys": ["order-17"]}, "key="),
        ({"nonsense": 1}, "takes no nonsense"),
    ],
)
def test_what_publish_is_called_with_elsewhere_is_answered_with_what_to_write(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidArgument, match=said):
        App("127.0.0.1:1").publish("orders", 17, **settings)


def test_a_handler_that_is_called_as_a_task_says_how_it_is_called() -> None:
    app = App(group="shop")

    @app.handler(["orders", "returns"])
    def close(order: dict[str, int]) -> None: ...

    task: Any = close
    for call in (task.delay, task.apply_async, task.s, task.send, task.send_with_options):
        with pytest.raises(InvalidArgument, match=r"app\.publish\('orders', payload"):
            call({"id": 17}, countdown=30)

    decorated: Any = app
    with pytest.raises(AttributeError, match=r"write @app\.handler"):
        decorated.task(close)
    with pytest.raises(AttributeError, match=r"write app\.cancel\("):
        decorated.control.revoke("order-17")
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        _ = decorated.nonsense

    def has_its_own(order: int) -> None: ...

    has_its_own.delay = 3  # type: ignore[attr-defined]
    assert app.handler("own")(has_its_own).delay == 3  # type: ignore[attr-defined]


def test_an_app_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_of_test.py").write_text(
        "import hourwheel\napp = hourwheel.App()\nother = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    app = load_app("shop_of_test")
    assert isinstance(app, App)
    assert load_app("shop_of_test:app") is app
    for wrong in ("shop_of_test:other", "shop_of_test:nothing", "nowhere_at_all:app"):
        with pytest.raises(InvalidArgument):
            load_app(wrong)
    with pytest.raises(InvalidArgument, match="shop_of_test:app"):
        load_app("shop_of_test.app")
    for no_name in ("", ":app", ".", "..shop:app", "./shop.py", "shop.py", "a/b:app"):
        with pytest.raises(InvalidArgument, match="module:app"):
            load_app(no_name)
    del sys.modules["shop_of_test"]


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import json\nimport hourwheel_of_nobody\n", "No module named 'hourwheel_of_nobody'"),
        ("import json\njson.loads('{')\n", "JSONDecodeError"),
        ("import json\napp = (\n", "SyntaxError"),
    ],
)
def test_a_program_that_cannot_be_imported_is_shown_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    (tmp_path / "broken_shop.py").write_text(program)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(FailedPrecondition, match=said) as raised:
        load_app("broken_shop:app")
    lines = raised.value.message.splitlines()
    files = [line for line in lines if line.lstrip().startswith("File ")]
    assert len(files) == 1, "nothing of Python, of libraries, or of ours"
    assert 'broken_shop.py", line 2' in files[0]


def test_decorators_without_what_they_need_say_how_they_are_written() -> None:
    bare: Any = App(group="shop")
    with pytest.raises(InvalidArgument, match=r"@app\.handler"):
        bare.handler(handle)
    with pytest.raises(InvalidArgument, match=r"@app\.recurring"):
        bare.recurring(handle)


async def test_a_worker_says_soon_that_its_nodes_are_out_of_reach(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hourwheel.workers.worker.LOOK_S", 0.01)
    app = App("127.0.0.1:1", group="shop")
    app.handler("orders")(handle)
    with caplog.at_level("WARNING", "hourwheel.worker"):
        serving = asyncio.create_task(app.serve())
        await until(lambda: "cannot reach 127.0.0.1:1: no connection" in caplog.text)
        serving.cancel()
        await asyncio.wait({serving})


class FakeChannel:
    """There is no connection for a while."""

    server, unreached = "a:1", "no connection"

    def __init__(self, looks: list[bool]) -> None:
        self._looks = iter(looks)

    @property
    def is_connected(self) -> bool:
        try:
            return next(self._looks)
        except StopIteration:
            raise Cancelled from None


async def test_nodes_out_of_reach_are_seldom_told_of_and_a_takeover_not_at_all(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hourwheel.workers.worker.LOOK_S", 0)
    looks = [True, *[False] * 2, True, *[False] * 1_000, True, *[False] * 2, True]
    channel: Any = FakeChannel(looks)
    with caplog.at_level("INFO", "hourwheel.worker"), pytest.raises(Cancelled):
        await tell_of_connection(channel)
    levels = [one.levelname for one in caplog.records]
    assert levels == ["WARNING"] * 10 + ["INFO"]


async def test_an_app_without_handlers_makes_no_worker() -> None:
    with pytest.raises(FailedPrecondition, match="no handlers"):
        await run_worker(App(), WorkerOptions(Program("shop:app")))
