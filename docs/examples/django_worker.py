"""The worker of a Django project: Django is set up before its models are imported.

    DJANGO_SETTINGS_MODULE=settings hourwheel worker django_worker:app

Handlers run in threads of the worker, where no request begins or ends. So `database` does for them
what Django does for requests.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import django
from django.db import close_old_connections

django.setup()

from django_shop import TOPIC, Order, Outbox, app, publish  # noqa: E402 - see above


@contextmanager
def database() -> Iterator[None]:
    """Within it no connection is used that is broken or too old, and none is kept for too long."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


@app.recurring("* * * * *")
@database()
def relay() -> None:
    """What hooks have left over."""
    for row in Outbox.objects.order_by("pk")[:1_000]:
        publish(row, wait_s=30)


@app.handler(TOPIC)
@database()
def close_unpaid(body: bytes) -> None:
    """Half an hour is over."""
    Order.objects.filter(pk=int(body), state="unpaid").update(state="closed")
