"""Django: messages that are published if the transaction commits, and never else.

    hourwheel worker django_shop:app

A message is written into a table within the transaction (the outbox). After the commit a hook
publishes what is there, at once. Where the process dies in between, a worker does it within a
minute. A row that is published twice, by a crash before its deletion, has the same dedup key: while
the first message is pending, that is one.
"""

from datetime import UTC, datetime, timedelta

from django.db import models, transaction

from hourwheel import App, IfPending, Message

app = App(group="shop")
TOPIC = "orders.unpaid"
CLOSED: list[int] = []


class Order(models.Model):
    """An order."""

    is_paid = models.BooleanField(default=False)

    class Meta:
        """Where it belongs."""

        app_label = "shop"


class Outbox(models.Model):
    """What is to be published."""

    topic = models.CharField(max_length=127)
    body = models.BinaryField()
    due = models.DateTimeField()

    class Meta:
        """Where it belongs."""

        app_label = "shop"


def publish_later(topic: str, body: bytes, due: datetime) -> None:
    """As a part of the transaction that is under way."""
    Outbox.objects.create(topic=topic, body=body, due=due)
    transaction.on_commit(relay, robust=True)  # a failure is logged: the worker tries again


@app.recurring("* * * * *")
def relay() -> None:
    """Publish what is there, and forget it."""
    for row in Outbox.objects.order_by("pk")[:1_000]:
        due, key = row.due.astimezone(UTC), f"outbox {row.pk}"
        message = Message(bytes(row.body), due=due, dedup_key=key, if_pending=IfPending.KEEP)
        app.producer.publish(row.topic, message)
        row.delete()


def place(due: datetime) -> Order:
    """A view's work: the order and its message, or neither."""
    with transaction.atomic():
        order = Order.objects.create()
        publish_later(TOPIC, str(order.pk).encode(), due + timedelta(minutes=30))
    return order


@app.handler(TOPIC)
def close_unpaid(body: bytes) -> None:
    """Half an hour is over."""
    if Order.objects.filter(pk=int(body), is_paid=False).exists():
        CLOSED.append(int(body))
