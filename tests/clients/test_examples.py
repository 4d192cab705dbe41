"""The programs in docs/examples, each at a broker of its own whose clock the test moves."""

import asyncio
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from hourwheel.testing import Broker, Clock
from node.tools.demo import trace
from tests.support.eventually import until
from tests.tidy import tree

FOLDER = "docs/examples"
LINES_MAX = 80
Load = Callable[[str], Any]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Imports an example anew."""
    loaded: list[Any] = []

    def load_one(name: str) -> Any:
        spec = importlib.util.spec_from_file_location(name, tree.ROOT / FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        loaded.append(module)
        return module

    yield load_one
    for module in loaded:
        module.app.close()


@pytest.fixture
def run(load: Load, hourwheel_broker: Broker) -> Load:
    """Imports an example, and has its handlers called."""

    def run_one(name: str) -> Any:
        module = load(name)
        hourwheel_broker.run(module.app)
        return module

    return run_one


def test_unpaid_orders_are_closed(run: Load, hourwheel_clock: Clock) -> None:
    shop = run("unpaid_orders")
    for number in ("paid", "unpaid", "later", "late"):
        shop.place(number)
    assert shop.pay("paid")
    shop.give_more_time("later")
    hourwheel_clock.advance("30m")
    states = {number: state.name for number, state in shop.ORDERS.items()}
    assert states == {"paid": "PAID", "unpaid": "CLOSED", "later": "UNPAID", "late": "CLOSED"}
    assert not shop.pay("late")
    hourwheel_clock.advance("30m")
    assert shop.ORDERS["later"] is shop.State.CLOSED


def test_orders_of_two_years_are_closed_as_their_trace_says(
    run: Load, hourwheel_clock: Clock
) -> None:
    """Of the shop that the demo replays: its orders are of the shape of real ones."""
    orders = trace.generate_orders(200, seed=17)
    half_an_hour_s = 30 * 60
    orders.approved[0] = orders.purchased[0] + half_an_hour_s
    orders.approved[1] = orders.purchased[1] + half_an_hour_s - 1
    timers = trace.build_trace(orders, seconds=30)
    is_closed = (timers.kind == trace.Kind.CLOSE_UNPAID) & (timers.cancel_ms == trace.NEVER)
    closed = {orders.ids[at] for at in timers.order[is_closed]}
    assert orders.ids[0] in closed
    assert orders.ids[1] not in closed
    assert 50 < len(closed) < 150

    shop, paid_too_late = run("unpaid_orders"), set()
    ordered = [(orders.purchased[at], False, order) for at, order in enumerate(orders.ids)]
    paid = [(orders.approved[at], True, order) for at, order in enumerate(orders.ids)]
    earlier_s = int(hourwheel_clock.now.timestamp()) - int(orders.purchased[0])
    for at_s, is_payment, order in sorted(one for one in ordered + paid if one[0] != trace.NEVER):
        hourwheel_clock.advance_to(datetime.fromtimestamp(int(at_s) + earlier_s, UTC))
        if not is_payment:
            shop.place(order)
        elif not shop.pay(order):
            paid_too_late.add(order)
    hourwheel_clock.advance("30m")
    assert {order for order, state in shop.ORDERS.items() if state is shop.State.CLOSED} == closed
    assert paid_too_late == closed.intersection(order for at_s, _, order in paid if at_s > 0)


class OtherSide:
    """Answers webhooks."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.seen: list[tuple[str, bytes]] = []
        other = self

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                other.seen.append((self.headers["Webhook-Id"], body))
                self.send_response(other.statuses.pop(0) if other.statuses else 204)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def test_webhooks_are_tried_for_a_day(
    run: Load, hourwheel_broker: Broker, hourwheel_clock: Clock
) -> None:
    webhooks, other, begin = run("webhooks"), OtherSide(), hourwheel_clock.now

    def publish() -> None:
        webhooks.app.publish("webhooks", webhooks.Webhook(other.url, "{}"))

    other.statuses = [500, 429]
    publish()
    hourwheel_clock.advance("1h")
    assert [one.at_ms - int(begin.timestamp() * 1_000) for one in hourwheel_broker.handled] == [
        0,
        10_000,
        70_000,
    ]
    assert len({message_id for message_id, _ in other.seen}) == 1

    other.statuses = [404]
    publish()
    hourwheel_clock.advance("1m")
    other.close()
    publish()  # nobody answers now
    hourwheel_clock.advance("30h")
    refused, gone = hourwheel_broker.admin.list_dead_letters("webhooks")
    assert refused.rejected_because == f"{other.url} answers 404"
    assert (gone.rejected_because, gone.attempts) == (f"{other.url} answers 503, for a day", 7)


@pytest.mark.parametrize(
    ("local", "reminded"),
    [
        ("2030-06-05 14:00", "2030-06-04 14:00"),
        ("2030-06-05 06:30", "2030-06-03 20:00"),
        ("2030-06-05 22:00", "2030-06-04 20:00"),
        ("2030-03-31 14:00", "2030-03-30 13:00"),  # a day of 23 hours lies in between
    ],
)
def test_reminders_keep_quiet_at_night(
    run: Load, hourwheel_clock: Clock, local: str, reminded: str
) -> None:
    calendar, zone = run("reminders"), ZoneInfo("Europe/Berlin")
    at = datetime.fromisoformat(local).replace(tzinfo=zone)
    made = calendar.Appointment(id="a", who="Ada", at=at, zone=str(zone))
    calendar.make(made.model_copy(update={"at": at + timedelta(days=1)}))
    calendar.change(made)
    due = datetime.fromisoformat(reminded).replace(tzinfo=zone)
    hourwheel_clock.advance_to(due - timedelta(seconds=1))
    assert calendar.SENT == []
    hourwheel_clock.advance("10d")
    assert [("Ada", at)] == calendar.SENT


def test_the_last_change_of_a_burst_counts(run: Load, hourwheel_clock: Clock) -> None:
    search = run("debounce")
    for _ in range(5):
        search.change("page")
        search.look_at("other")
        hourwheel_clock.advance("20s")
    assert search.INDEXED == ["other"] * 2, "each half a minute"
    hourwheel_clock.advance("1m")
    assert sorted(search.INDEXED) == ["other"] * 3 + ["page"]


def test_reports_are_made_each_night(run: Load, hourwheel_clock: Clock) -> None:
    reports = run("nightly_report")
    hourwheel_clock.advance_to(datetime(2030, 1, 8, 12, tzinfo=UTC))
    days = ["2029-12-31", *(f"2030-01-{day:02}" for day in range(1, 8))]
    assert list(reports.REPORTS) == days
    assert [*days[:4], days[6], days[7]] == reports.MAILED, "not on Saturday and Sunday"


def test_a_trip_is_booked_or_undone(run: Load, hourwheel_clock: Clock) -> None:
    trips, undone = run("saga"), []

    def book(trip: str, step: str) -> None:
        if trip == "full" and step == "car":
            raise trips.SoldOut
        if trip == "slow" and step == "hotel":
            raise trips_retry(delay=timedelta(minutes=4))

    trips_retry = sys.modules["hourwheel"].Retry
    trips.book, trips.undo = book, lambda trip, step: undone.append(f"{trip} {step}")
    for trip in ("good", "full", "slow"):
        trips.start(trip)
    hourwheel_clock.advance("1h")
    assert trips.ENDED == {"good": "booked", "full": "no car", "slow": "too late"}
    full, slow = ["full car", "full hotel", "full flight"], ["slow hotel", "slow flight"]
    assert undone == [*full, *slow, *slow], "and once more, by the step that was tried again"


def test_a_trip_is_undone_when_its_worker_crashes_meanwhile(
    load: Load, hourwheel_broker: Broker, hourwheel_clock: Clock
) -> None:
    """A broker out of reach stands for it: a message of `undo_all` is not published."""
    trips, undone, crashes = load("saga"), set[str](), ["full", "late"]
    hourwheel_broker.run(trips.app, raise_errors=False)
    publish = trips.app.publish

    def publish_or_crash(topic: str, payload: Any, **settings: Any) -> Any:
        if topic == "trips.undo" and payload["trip"] in crashes:
            crashes.remove(payload["trip"])
            raise OSError("it crashes")
        return publish(topic, payload, **settings)

    def book(trip: str, step: str) -> None:
        if step == "hotel" and trip == "full":
            raise trips.SoldOut
        if step == "hotel":
            raise sys.modules["hourwheel"].Retry(delay=timedelta(hours=2))

    trips.app.publish = publish_or_crash
    trips.book, trips.undo = book, lambda trip, step: undone.add(f"{trip} {step}")
    for trip in ("full", "late"):
        trips.start(trip)
    hourwheel_clock.advance("1h")
    assert crashes == []
    assert undone == {"full hotel", "full flight", "late hotel", "late flight"}


@pytest.mark.parametrize("late_step", ["hotel", "car"])
def test_a_step_that_is_booked_while_the_deadline_ends_the_trip_is_undone(
    run: Load, hourwheel_clock: Clock, late_step: str
) -> None:
    trips, booked, meanwhile = run("saga"), set[str](), list[str]()
    publish = trips.app.publish

    def publish_or_undo(topic: str, payload: Any, **settings: Any) -> Any:
        if topic == "trips.undo" and meanwhile:  # another worker does it at once
            booked.discard(payload["step"])
            return None
        return publish(topic, payload, **settings)

    def book(trip: str, step: str) -> None:
        if step == late_step:
            meanwhile.append(step)
            trips.give_up(trip)
            meanwhile.clear()
        booked.add(step)

    trips.app.publish = publish_or_undo
    trips.book, trips.undo = book, lambda _, step: booked.discard(step)
    trips.start("late")
    hourwheel_clock.advance("1h")
    assert trips.ENDED == {"late": "too late"}
    assert booked == set()


async def ask(api: Any, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """A request to an ASGI application."""
    raw, sent = json.dumps(body).encode(), list[dict[str, Any]]()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": raw}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
    }
    await api(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


@asynccontextmanager
async def started(api: Any) -> AsyncIterator[None]:
    async with api.router.lifespan_context(api):
        yield


async def test_a_fastapi_application_schedules_and_handles(
    load: Load, hourwheel_broker: Broker, hourwheel_clock: Clock
) -> None:
    """Its handlers run by themselves, as in production; time is the broker's."""
    shop = load("fastapi_shop")
    shop.app.connect_to(hourwheel_broker.server)
    async with started(shop.api):
        for number in (17, 18):
            status, answer = await ask(shop.api, "POST", "/orders", {"id": number, "total": 9.5})
            assert (status, set(answer)) == (201, {"message_id"})
        assert await ask(shop.api, "POST", "/orders/17/payment") == (200, {"state": "paid"})
        await hourwheel_clock.advance_async("30m")
        await until(lambda: shop.CLOSED == [18])
        status, answer = await ask(shop.api, "POST", "/orders/18/payment")
        assert (status, answer) == (409, {"detail": "too late: ALREADY_RELEASED"})
        assert (await ask(shop.api, "POST", "/orders", {"id": "x"}))[0] == 422
    await asyncio.sleep(0)


def test_django_publishes_what_was_committed(
    load: Load, hourwheel_broker: Broker, hourwheel_clock: Clock, tmp_path: Path
) -> None:
    import django  # noqa: PLC0415 - it is set up here
    from django.conf import settings  # noqa: PLC0415
    from django.db import connections, transaction  # noqa: PLC0415

    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "shop.sqlite")}
    settings.configure(DATABASES={"default": database}, USE_TZ=True)
    django.setup()
    shop, worker = load("django_shop"), load("django_worker")
    with connections["default"].schema_editor() as editor:
        editor.create_model(shop.Order)
        editor.create_model(shop.Outbox)
    hourwheel_broker.run(shop.app)

    order = shop.place(hourwheel_clock.now)
    assert shop.Outbox.objects.count() == 0
    with pytest.raises(ValueError, match="no stock"), transaction.atomic():  # noqa: PT012
        shop.place(hourwheel_clock.now)
        raise ValueError("no stock")
    # The process has died after its commit: a hook publishes its own row, and not this one.
    lost = shop.Order.objects.create()
    due = hourwheel_clock.now + timedelta(minutes=30)
    shop.Outbox.objects.create(topic=shop.TOPIC, body=str(lost.pk).encode(), due=due)
    other = shop.place(hourwheel_clock.now)
    assert shop.Outbox.objects.count() == 1
    hourwheel_clock.advance("29m")
    assert shop.Outbox.objects.count() == 0
    assert not shop.Order.objects.filter(state="closed").exists()
    hourwheel_clock.advance("1m")
    closed = shop.Order.objects.filter(state="closed").values_list("pk", flat=True)
    assert sorted(closed) == [order.pk, lost.pk, other.pk]
    assert shop.Order.objects.count() == 3

    connection = connections["default"]
    with worker.database():
        assert connection.connection is None, "one that is too old is not used"
        shop.Order.objects.exists()
        assert connection.connection is not None
    assert connection.connection is None, "nor kept"


def test_the_notebook_runs_from_top_to_bottom() -> None:
    notebook = json.loads(tree.text(f"{FOLDER}/time_by_hand.ipynb"))
    found: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), found)
    assert found["greeted"] == [
        ("Ada", "2030-01-01T01:00:00+00:00"),
        ("Edsger", "2030-01-02T01:00:00+00:00"),
    ]
    assert found["outcomes"] == ("CANCELLED", "RESCHEDULED")
    assert found["reasons"] == ["there is nobody to greet"]
