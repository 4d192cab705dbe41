"""The demo's trace: the timers of orders, compressed in time."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from node.tools.demo.trace import (
    NEVER,
    Kind,
    Orders,
    Trace,
    build_trace,
    generate_orders,
    read_orders,
)

HEADER = (
    '"order_id","customer_id","order_status","order_purchase_timestamp","order_approved_at",'
    '"order_delivered_carrier_date","order_delivered_customer_date","order_estimated_delivery_date"'
)
DELIVERED = (
    "a1,c,delivered,2017-10-02 10:00:00,2017-10-02 10:10:00,2017-10-04 19:55:00,"
    "2017-10-10 21:25:13,2017-10-18 00:00:00"
)
UNPAID = '"b2",c,canceled,2018-01-01 00:00:00,,,,2018-01-20 00:00:00'


def kinds(trace: Trace) -> dict[str, tuple[int, bool]]:
    """Kind -> (how long it waits, whether it is taken back), of a trace of one order."""
    return {
        Kind(int(trace.kind[index])).label: (
            int(trace.due_ms[index] - trace.publish_ms[index]),
            int(trace.cancel_ms[index]) != NEVER,
        )
        for index in range(len(trace))
    }


def test_orders_are_read_by_purchase() -> None:
    orders = read_orders([HEADER, UNPAID, DELIVERED])
    assert orders.ids == ["a1", "b2"]
    assert orders.purchased[0] == np.datetime64("2017-10-02T10:00:00", "s").astype(int)
    assert (orders.approved[1], orders.delivered[1]) == (NEVER, NEVER)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "empty"),
        ([HEADER], "empty"),
        (["order_id,x", "1,2"], "order_purchase_timestamp is missing"),
        ([HEADER, DELIVERED.replace("2017-10-02 10:10:00", "soon")], "order_approved_at"),
        ([HEADER, DELIVERED, DELIVERED], "two orders"),
        ([HEADER, DELIVERED.replace("2017-10-02 10:00:00", "")], "never purchased"),
    ],
)
def test_orders_are_refused_when_they_cannot_be_used(lines: list[str], why: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=why):
        read_orders(lines)


def test_paid_order_takes_its_first_timer_back_and_gets_the_others() -> None:
    found = kinds(build_trace(read_orders([HEADER, DELIVERED]), 10))
    assert {name: cancelled for name, (_, cancelled) in found.items()} == {
        "close-unpaid": True,
        "chase-handover": True,
        "remind-seller": True,
        "apologise": True,
        "ask-review": False,
    }


def test_unpaid_order_is_closed() -> None:
    assert kinds(build_trace(read_orders([HEADER, UNPAID]), 10)) == {"close-unpaid": (3_500, False)}


def test_late_parcel_makes_both_its_timers_due() -> None:
    late = DELIVERED.replace("2017-10-18", "2017-10-05")
    found = kinds(build_trace(read_orders([HEADER, late]), 10))
    assert (found["remind-seller"][1], found["apologise"][1]) == (False, False)


def test_bodies_name_order_and_timer_and_differ() -> None:
    trace = build_trace(read_orders([HEADER, UNPAID, DELIVERED]), 10)
    bodies = [trace.body(index) for index in range(len(trace))]
    assert len(set(bodies)) == len(trace) == 6
    assert json.loads(bodies[0]) == {"order": "a1", "timer": "close-unpaid"}


def test_calendar_is_played_from_the_first_purchase_to_the_last() -> None:
    trace = build_trace(read_orders([HEADER, UNPAID, DELIVERED]), 10)
    assert [trace.date_at(at) for at in (-5, 0, trace.calendar_ms, 1e9)] == [
        *("2017-10-02", "2017-10-02", "2018-01-01", "2018-01-01")
    ]


def test_generated_orders_have_the_shape_of_the_real_ones() -> None:
    orders = generate_orders(4_071, 7)
    trace = build_trace(orders, 30)
    assert len(set(orders.ids)) == 4_071
    assert 19_000 < len(trace) < 21_000
    cancelled = (trace.cancel_ms != NEVER).mean()
    assert 0.5 < cancelled < 0.7
    assert set(trace.kind.tolist()) == {int(kind) for kind in Kind}


def test_generated_orders_are_the_same_when_the_seed_is() -> None:
    first, second, other = (generate_orders(50, seed) for seed in (1, 1, 2))
    assert first.ids == second.ids != other.ids
    assert (first.delivered == second.delivered).all()


times = st.integers(0, 10**9)
maybe = st.one_of(st.just(NEVER), times)


@given(
    st.lists(st.tuples(times, maybe, maybe, maybe, times), min_size=1, max_size=20),
    st.floats(1, 100),
)
def test_order_of_events_is_kept_whatever_happens_to_orders(
    lives: list[tuple[int, int, int, int, int]], seconds: float
) -> None:
    columns = [np.array(column, np.int64) for column in zip(*lives, strict=True)]
    orders = Orders([str(number) for number in range(len(lives))], *columns)
    trace = build_trace(orders, seconds)
    taken_back = trace.cancel_ms != NEVER
    assert (trace.due_ms >= trace.publish_ms).all()
    assert (trace.cancel_ms[taken_back] >= trace.publish_ms[taken_back]).all()
    assert (trace.cancel_ms[taken_back] <= trace.due_ms[taken_back]).all()
    assert (np.diff(trace.publish_ms) >= 0).all()
    assert trace.publish_ms.min(initial=0) >= 0
    last_ms = -(-round(seconds * 1_000) // 10) * 10
    assert trace.end_ms <= last_ms, "due times fall on hundredths of a second"


def test_first_orders_are_the_earliest() -> None:
    orders = read_orders([HEADER, UNPAID, DELIVERED]).first(1)
    assert orders.ids == ["a1"]
    assert len(orders.estimated) == 1
