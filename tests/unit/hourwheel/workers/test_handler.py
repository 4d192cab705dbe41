from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from hourwheel.errors import InvalidArgument
from hourwheel.workers.handler import MessageContext, make_handler

CONTEXT = MessageContext("id", "orders", "shop", b'{"id":17}', 1, 0, 0)


def nothing() -> None: ...
def payload(order: dict[str, int]) -> None: ...
def context(message: MessageContext) -> None: ...
def both(order: dict[str, int], message: MessageContext) -> None: ...
def context_first(message: MessageContext, order: dict[str, int]) -> None: ...
def unannotated(order): ...  # type: ignore[no-untyped-def]
def with_default(order: dict[str, int], w: bool = False) -> None: ...  # noqa: FBT002
def only_default(order: dict[str, int] | None = None) -> None: ...
def context_then_default(message: MessageContext, order: str = "-") -> None: ...
def named_default(message: MessageContext, *, order: str = "-") -> None: ...
async def coroutine(order: dict[str, int]) -> None: ...


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (nothing, ((), {})),
        (payload, (({"id": 17},), {})),
        (context, ((), {"message": CONTEXT})),
        (both, (({"id": 17},), {"message": CONTEXT})),
        (context_first, (({"id": 17},), {"message": CONTEXT})),
        (unannotated, ((CONTEXT.body,), {})),
        (with_default, (({"id": 17},), {})),
        (only_default, (({"id": 17},), {})),
        (context_then_default, (('{"id":17}',), {"message": CONTEXT})),
        (named_default, ((), {"message": CONTEXT})),
        (coroutine, (({"id": 17},), {})),
    ],
)
def test_a_function_gets_what_it_is_annotated_with(
    function: Callable[..., Any], arguments: Any
) -> None:
    handler = make_handler(function, "orders", "shop")
    assert handler.arguments(CONTEXT) == arguments
    assert handler.is_coroutine == (function is coroutine)


def test_a_payload_with_a_default_keeps_it_where_the_message_says_nothing() -> None:
    """As the occurrences of a function that is called again and again."""
    handler = make_handler(only_default, "orders", "shop")
    assert handler.arguments(replace(CONTEXT, body=b"")) == ((), {})
    text = make_handler(context_then_default, "orders", "shop")
    empty = replace(CONTEXT, body=b"", content_type="text/plain")
    assert text.arguments(empty) == (("",), {"message": empty})


def two(order: dict[str, int], other: int) -> None: ...
def any_number(*orders: int) -> None: ...
def by_name(**orders: int) -> None: ...
def named(*, order: int) -> None: ...
def generator() -> Iterator[int]:
    yield 1


def unknown(order: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    "function",
    [two, any_number, by_name, named, generator, unknown, int, dict, max, 3, partial(two, {})],
)
def test_a_function_that_could_not_be_called_is_refused_at_once(function: Any) -> None:
    with pytest.raises(InvalidArgument, match=getattr(function, "__name__", "no function")):
        make_handler(function, "orders", "shop")
