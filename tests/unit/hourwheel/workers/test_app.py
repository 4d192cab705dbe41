import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hourwheel.errors import FailedPrecondition, InvalidArgument, InvalidDueTime
from hourwheel.workers.app import App, load_app, make_message
from hourwheel.workers.command import WorkerOptions, run_worker


def handle(order: dict[str, int]) -> None: ...


def test_a_handler_stays_a_function_and_is_registered() -> None:
    app = App(group="shop")
    assert app.handler("orders", time_limit=timedelta(seconds=3))(handle) is handle
    (handler,) = app.handlers
    assert (handler.topic, handler.group, handler.time_limit_ms) == ("orders", "shop", 3_000)


@pytest.mark.parametrize(
    "settings",
    [{"group": ""}, {"concurrency": 0}, {"time_limit": -1}, {"invisible": 1.5}],
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


def test_messages_are_made_of_what_a_program_says() -> None:
    message = make_message({"id": 17}, in_="30m", key="order-17", tags=["eu"])
    assert (message.body, message.delay_ms) == (b'{"id":17}', 1_800_000)
    assert (message.keys, message.content_type) == (["order-17"], "application/json")
    assert make_message(b"x", in_=timedelta(seconds=1)).delay_ms == 1_000
    assert make_message("x", at=datetime(2027, 1, 1, tzinfo=UTC)).due_ms == 1_798_761_600_000
    assert make_message("x").delay_ms is None


@pytest.mark.parametrize("in_", ["30", "tomorrow", "2027-01-01T00:00:00Z", "-1s"])
def test_a_delay_that_is_none_is_refused(in_: str) -> None:
    with pytest.raises(InvalidDueTime):
        make_message("x", in_=in_)


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
    del sys.modules["shop_of_test"]


async def test_an_app_without_handlers_makes_no_worker() -> None:
    with pytest.raises(FailedPrecondition, match="no handlers"):
        await run_worker(App(), WorkerOptions("shop:app"))
