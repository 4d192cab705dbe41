"""What people write who come from Celery or dramatiq, and what to write instead."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn

from hourwheel import errors

_WORDS: Final = {
    "countdown": "in_='30s'",
    "delay": "in_='30s'",
    "delay_ms": "in_='30s'",
    "due_ms": "at=, an instant with a time zone",
    "schedule": "at=, an instant with a time zone",
    "keys": "key='order-17'",
    "headers": "properties, a dict of texts",
    "eta": "at=, an instant with a time zone",
    "args": "payload, one value, such as a dict",
    "kwargs": "payload, one value, such as a dict",
    "queue": "the topic, which comes first",
    "routing_key": "the topic, which comes first",
    "task_id": "key='order-17'",
    "expiration": "expires=, a timedelta or an instant",
    "max_retries": "nothing: attempts are the group's",
}
_ATTRIBUTES: Final = {
    "task": '@app.handler("orders")',
    "actor": '@app.handler("orders")',
    "send_task": 'app.publish("orders", payload)',
    "control": 'app.cancel("orders", "order-17"), which is what revoke is for',
    "start": "await app.serve(), or hourwheel worker module:app",
    "worker_main": "await app.serve(), or hourwheel worker module:app",
    "conf": "arguments of App and of @app.handler",
}
_CALLS: Final = (
    *("delay", "apply_async", "s", "si", "signature"),
    *("send", "send_with_options", "message", "message_with_options"),
)


def check_settings(given: Mapping[str, object]) -> None:
    """Raises InvalidArgument where an argument of `App.publish` has another name elsewhere."""
    for name in given:
        hint = f": write {_WORDS[name]}" if name in _WORDS else ""
        raise errors.InvalidArgument(f"publish takes no {name}{hint}")


def missing(name: str) -> AttributeError:
    """What is raised for an attribute that an `App` has not, and what to write instead."""
    hint = f": write {_ATTRIBUTES[name]}" if name in _ATTRIBUTES else ""
    return AttributeError(f"an App has no attribute {name!r}{hint}")


def mark(function: Callable[..., object], topic: str) -> None:
    """Have a handler say how it is called, where somebody calls it as a task or as an actor."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise errors.InvalidArgument(
            f"a handler is called by publishing to its topic: write "
            f"app.publish({topic!r}, payload, in_='30s')"
        )

    for name in _CALLS:
        if not hasattr(function, name):
            with suppress(AttributeError, TypeError):  # it takes no attributes
                setattr(function, name, refuse)
