import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from hourwheel import errors
from hourwheel.gateway.models import Filter, MoveIds, NewMessage, NewMessages, when_of

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@given(json_values)
def test_json_is_the_body_as_it_was(value: Any) -> None:
    message = NewMessage.model_validate({"json": value})
    assert json.loads(message.body) == value
    assert message.type_of_content == "application/json"


@given(st.binary(max_size=64), st.text(max_size=16))
def test_bytes_and_texts_are_the_body(raw: bytes, text: str) -> None:
    encoded = base64.b64encode(raw).decode()
    assert NewMessage.model_validate({"base64": encoded}).body == raw
    found = NewMessage.model_validate({"text": text, "content_type": "text/plain"})
    assert (found.body, found.type_of_content) == (text.encode(), "text/plain")


@pytest.mark.parametrize("given_", [{}, {"text": "x", "json": None}, {"text": None}, {"text": 1}])
def test_a_message_has_one_body(given_: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        NewMessage.model_validate(given_)


def test_what_is_no_base64() -> None:
    with pytest.raises(errors.InvalidArgument, match="body cannot be read"):
        _ = NewMessage.model_validate({"base64": "%"}).body


def test_one_message_or_a_list() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(NewMessages)
    assert isinstance(adapter.validate_python({"text": "x"}), NewMessage)
    assert len(adapter.validate_python([{"text": "x"}] * 1_000)) == 1_000
    for wrong in ([], [{"text": "x"}] * 1_001, "x", None):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)


def test_due_times() -> None:
    assert when_of(None, None) == (None, None)
    assert when_of(None, "1h30m") == (5_400_000, None)
    assert when_of(None, 7) == (7, None)
    assert when_of("2027-03-01T09:00:00Z", None) == (None, 1_803_891_600_000)
    assert when_of(1_803_891_600_000, None) == (None, 1_803_891_600_000)
    for due, delay in (("1h", None), ("2000-01-01T00:00Z", None), (17, None), ("1h", "1h")):
        with pytest.raises(errors.InvalidDueTime):
            when_of(due, delay)


def test_filters_are_of_one_kind_and_ids_are_bounded() -> None:
    assert Filter(tags="paid").sql is None
    for wrong in ({}, {"tags": "a", "sql": "b"}):
        with pytest.raises(ValidationError):
            Filter.model_validate(wrong)
    for ids in ([], ["0" * 47], ["0" * 48] * 1_001):
        with pytest.raises(ValidationError):
            MoveIds.model_validate({"ids": ids, "delay": 1})
