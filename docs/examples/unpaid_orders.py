"""Close orders that nobody pays within half an hour.

    hourwheel worker unpaid_orders:app

Each order is its own delayed message, with the order's number as the key. Who pays cancels it: no
job looks through a table of orders every minute.
"""

from enum import Enum

from hourwheel import App, CancelOutcome

app = App(group="shop")
TOPIC = "orders.unpaid"


class State(Enum):
    """Of an order."""

    UNPAID = "unpaid"
    PAID = "paid"
    CLOSED = "closed"


ORDERS: dict[str, State] = {}
"""Stands for a table of the shop's database."""


def place(number: str) -> None:
    """A customer orders."""
    ORDERS[number] = State.UNPAID
    app.publish(TOPIC, {"order": number}, in_="30m", key=number)


def pay(number: str) -> bool:
    """A customer pays. Returns whether that is in time.

    The cancel's answer is true: it was in time, or the message is on its way. Then the database
    decides, here and in the handler: in a real one, in a transaction.
    """
    is_cancelled = app.cancel(TOPIC, number) is CancelOutcome.CANCELLED
    if ORDERS[number] is State.UNPAID:
        ORDERS[number] = State.PAID
    return is_cancelled or ORDERS[number] is State.PAID


def give_more_time(number: str) -> None:
    """Customers who call get another hour from now."""
    app.move(TOPIC, number, in_="1h")


@app.handler(TOPIC)
def close_unpaid(message: dict) -> None:
    """Half an hour is over. Coming twice does no harm: a closed order stays closed."""
    number = message["order"]
    if ORDERS[number] is State.UNPAID:
        ORDERS[number] = State.CLOSED
