"""Django: messages that are published if the transaction commits, and never else.

A message is a row (the outbox) of the same transaction. After the commit a hook publishes that one
row, and waits half a second at most: a request does not hang while the broker is away. What is left
over, by that or by the end of a process, the worker of django_worker.py publishes within a minute.
A row that is published twice has the same dedup key: while the first message is pending, that is
one.
"""

from datetime import UTC, datetime, timedelta

from django.db import models, transaction

from hourwheel import App, IfPending, Message

app = App(group="shop")
TOPIC = "orders.unpaid"


class Order(models.Model):
    """An order."""

    state = models.CharField(max_length=10, default="unpaid")

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


def publish(row: Outbox, wait_s: float = 0.5) -> None:
    """Publish it, and forget it."""
    due, key = row.due.astimezone(UTC), f"outbox {row.pk}"
    message = Message(bytes(row.body), due=due, dedup_key=key, if_pending=IfPending.KEEP)
    app.producer.publish_soon(row.topic, message).result(wait_s)
    row.delete()


def place(at: datetime) -> Order:
    """A view's work: the order and its message, or neither."""
    with transaction.atomic():
        order = Order.objects.create()
        due, body = at + timedelta(minutes=30), str(order.pk).encode()
        row = Outbox.objects.create(topic=TOPIC, body=body, due=due)
        transaction.on_commit(lambda: publish(row), robust=True)  # a failure is logged
    return order
