"""The naive rule of ordered groups, by hand."""

import pytest

from chaos.log_parts.order import Turns
from hourwheel.filter_language.text import FilterExpression, FilterKind
from hourwheel.formats.meta import MessageMeta, encode

PLACE = (1, 256)


def metas(*keys: str, tags: tuple[str, ...] = ()) -> list[bytes]:
    return [encode(MessageMeta(ordering_key=key, tags=tags)).raw for key in keys]


@pytest.mark.parametrize(
    ("resolved", "ended", "found"),
    [
        ({0}, [0], []),
        ({2}, [2], [(2, 0)]),
        ({1}, [1], []),
        ({0, 2}, [2], []),
        (set(), [2], [(2, 0)]),
        ({3}, [3], []),
        ({1, 2, 4}, [1, 2, 4], [(2, 0)]),
    ],
    ids=["first", "second", "of another key", "in turn", "given back", "no key", "some at once"],
)
def test_message_when_an_earlier_one_of_its_key_is_open_overtakes(
    resolved: set[int], ended: list[int], found: list[tuple[int, int]]
) -> None:
    every = metas("a", "b", "a", "", "b")
    assert list(Turns().overtaken(PLACE, ended, resolved, 0, every.__getitem__, ())) == found


def test_message_when_nobody_waits_for_the_earlier_one_any_more_overtakes_nobody() -> None:
    every = metas("a", "a")
    assert not list(Turns().overtaken(PLACE, [1], {1}, 1, every.__getitem__, ()))
    blue = FilterExpression(FilterKind.TAGS, "blue")
    assert not list(Turns().overtaken(PLACE, [1], {1}, 0, every.__getitem__, (blue,)))
    wanted = metas("a", "a", tags=("blue",))
    assert list(Turns().overtaken(PLACE, [1], {1}, 0, wanted.__getitem__, (blue,))) == [(1, 0)]
