"""How bodies are shown."""

import pytest

from node.console.views import BODY_SHOWN_BYTES_MAX, shown_body

HOSTILE = "<script>alert(1)</script>\u202e\u2603"


@pytest.mark.parametrize(
    ("body", "shown", "is_text"),
    [
        (b"", "", True),
        (HOSTILE.encode(), HOSTILE, True),
        (b"\xff\xfe", "ff fe", False),
        (b"a\0b", "61 00 62", False),
    ],
)
def test_body_is_text_where_it_can_be(body: bytes, shown: str, is_text: bool) -> None:
    found = shown_body(body)
    assert (found["body"], found["body_is_text"], found["body_is_cut"]) == (shown, is_text, False)


@pytest.mark.parametrize("before", range(4))
def test_body_is_cut_where_it_is_long_also_inside_a_character(before: int) -> None:
    found = shown_body(b"a" * before + "\U0001f600".encode() * BODY_SHOWN_BYTES_MAX)
    assert (found["body_is_text"], found["body_is_cut"]) == (True, True)
    assert BODY_SHOWN_BYTES_MAX - 4 < len(found["body"].encode()) <= BODY_SHOWN_BYTES_MAX


def test_body_that_is_cut_is_no_text_where_it_was_none() -> None:
    found = shown_body(b"\xff" * (BODY_SHOWN_BYTES_MAX + 1))
    assert (found["body_is_text"], found["body_is_cut"]) == (False, True)


def test_body_is_nothing_where_it_was_not_asked_for() -> None:
    assert shown_body(None)["body"] is None
