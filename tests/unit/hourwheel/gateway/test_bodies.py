"""What a body may cost: its values are counted before they are made, and complaints are few."""

import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import pytest
from pydantic import TypeAdapter

from hourwheel import errors
from hourwheel.gateway.bodies import VALUE_COUNT_MAX, checked
from hourwheel.gateway.problems import NotJson
from hourwheel.gateway.routes import ROUTES

PUBLISH: Final = TypeAdapter[Any](next(one.body for one in ROUTES if one.name == "publish"))
SIZE: Final = 2 << 20


def filled(head: bytes, part: Callable[[int], bytes], tail: bytes) -> bytes:
    """Parts between commas, up to `SIZE`."""
    count = SIZE // (len(part(1 << 20)) + 1)
    return head + b",".join(map(part, range(count))) + tail


def name(number: int) -> bytes:
    return b'"%x":1' % number


BOMBS: Final = {
    "lists": filled(b"[", lambda _: b"[]", b"]"),
    "objects": filled(b"[", lambda _: b"{}", b"]"),
    "within a message": filled(b'{"json":[', lambda _: b"{}", b"]}"),
    "many fields": filled(b"{", name, b"}"),
    "many fields of the second": filled(b'[{"text":"x"},{', name, b"}]"),
    "names alone": filled(b"[", lambda _: b'""', b"]"),
    "many properties": filled(b'{"text":"x","properties":{', name, b"}}"),
    "many tags": filled(b'{"text":"x","tags":[', lambda _: b"1", b"]}"),
    "one string that never ends": b'{"text":"' + b"[," * (SIZE // 2),
    "a half of an escape": b'{"text":"' + b"," * SIZE + b"\\",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bomb_costs_no_more_than_its_size(bomb: str) -> None:
    raw = BOMBS[bomb]
    tracemalloc.start()
    with pytest.raises((errors.InvalidArgument, NotJson)):
        checked(PUBLISH, raw)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 24 * SIZE


@pytest.mark.parametrize("count", [VALUE_COUNT_MAX // 8, VALUE_COUNT_MAX - 10])
def test_many_values_are_taken_up_to_the_limit(count: int) -> None:
    raw = b'{"json":[' + b",".join([b"1"] * count) + b"]}"
    assert len(checked(PUBLISH, raw).json_value) == count


def test_marks_in_strings_are_no_values() -> None:
    text = ',[{\\"' * VALUE_COUNT_MAX
    assert checked(PUBLISH, f'{{"text":"{text}"}}'.encode()).text == text.replace("\\", "")


def test_unknown_fields_are_named_while_they_are_few() -> None:
    with pytest.raises(errors.InvalidArgument, match="colour"):
        checked(PUBLISH, b'{"text":"x","colour":1}')
    with pytest.raises(errors.InvalidArgument, match="more than"):
        checked(PUBLISH, b"{" + b",".join(map(name, range(1_000))) + b"}")
