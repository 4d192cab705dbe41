"""Reads and compiles filters where the event loop does not wait: large ones take milliseconds.

One thread for all, which holds up the loop by Python's switch interval whenever that has given up
the interpreter, some times a turn; a node's is short (node/process/lifecycle.py). A stranger who
sends one large filter after another delays large filters and little else.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

import hourwheel.filter_language.sql  # noqa: F401 - now: with the first filter, it would hold up the loop
from filters.compile import compile_filter, is_compiled
from hourwheel.filter_language.text import FilterExpression, is_read
from hourwheel.formats.tag_gene import GeneSpec

_SHORT_CHARS: Final = 256
"""A text so short is read at once: in a millisecond, whatever it says."""
_THREAD: Final = ThreadPoolExecutor(1, "hourwheel-filters")

Result = TypeVar("Result")


async def read_filter(expression: FilterExpression) -> FilterExpression:
    """The canonical form of an expression.

    Raises:
        InvalidFilter: it cannot be understood.
    """
    if _is_short(expression) or is_read(expression):
        return expression.canonical()
    return await _beside(expression.canonical)


async def make_ready(expression: FilterExpression, spec: GeneSpec) -> None:
    """Have `compile_filter` cost nothing when it is asked next.

    Raises:
        InvalidFilter: it cannot be understood.
    """
    if not (_is_short(expression) or is_compiled(expression, spec)):
        await _beside(partial(compile_filter, expression, spec))


def _is_short(expression: FilterExpression) -> bool:
    return len(expression.text) <= _SHORT_CHARS


async def _beside(work: Callable[[], Result]) -> Result:
    """What the work gives, done by the thread."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREAD, work)
