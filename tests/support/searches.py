"""How many bytes of texts filters search, counted: so no machine is too busy for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

from hourwheel.filter_language import evaluate
from hourwheel.filter_language.tree import TextPlace


@dataclass
class Searched:
    """What was searched so far."""

    bytes: int = 0


@contextmanager
def counting_searches() -> Iterator[Searched]:
    """What CONTAINS goes through meanwhile, message by message (columns are not seen)."""
    searched = Searched()

    def contains(text: str, part: str) -> bool:
        searched.bytes += len(text)
        return part in text

    with mock.patch.dict(evaluate.PLACES, {TextPlace.CONTAINS: contains}):
        yield searched
