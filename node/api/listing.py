"""Lists in answers: put together in slices, page by page, never larger than a client can receive.

A page token is where the page ended: a version and a name, or a number. It is no secret, and a
forged one asks for another page.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from hourwheel import errors, limits
from node.api.checks import check_at_most

AT_ONCE: Final = 48
"""Items that are put together before the loop goes on: about a millisecond."""
_PAGE_BYTES: Final = 1 << 20
"""A page ends when it is so large."""
_NUMBER_DIGITS: Final = 10
_VERSION: Final = b"\x01"


class Listed(Protocol):
    """What a list is made of, on the wire."""

    def ByteSize(self) -> int:  # noqa: N802 - as protobuf names it
        """Bytes that it takes."""
        ...


InfoT = TypeVar("InfoT")
ListedT = TypeVar("ListedT", bound=Listed)


class Page:
    """How much of a list one answer takes, and from where."""

    def __init__(self, page_size: int, page_token: bytes) -> None:
        """As they were sent. Raises InvalidArgument."""
        check_at_most("page_size", page_size, limits.LIST_PAGE_SIZE_MAX)
        if page_token and (page_token[:1] != _VERSION or not page_size):
            raise _no_token()
        self._after, self._size = page_token[1:], page_size
        self._left = page_size or limits.LIST_PAGE_SIZE_MAX
        self._bytes = 0
        self.next_token = b""

    @property
    def after_name(self) -> str:
        """The name that the page before ended with; "" for the first page."""
        try:
            return self._after.decode()
        except UnicodeDecodeError:
            raise _no_token() from None

    @property
    def after_number(self) -> int:
        """The same of a list by numbers; 0 for the first page."""
        if self._after and not (self._after.isdigit() and len(self._after) <= _NUMBER_DIGITS):
            raise _no_token()
        return int(self._after or b"0")

    @property
    def room(self) -> int:
        """How many items to ask for next."""
        return min(self._left, AT_ONCE)

    @property
    def is_full(self) -> bool:
        """Nothing more goes on this page."""
        return bool(self._size) and (self._left <= 0 or self._bytes >= _PAGE_BYTES)

    def add(self, count: int, size_bytes: int) -> None:
        """So much was put on it. Raises InvalidArgument when it is full and all there may be."""
        self._bytes += size_bytes
        if self._size:
            self._left -= count
        elif self._bytes > limits.LIST_BYTES_MAX:
            raise errors.InvalidArgument(
                "the list is too long for one answer: ask for pages, with page_size",
                field="page_size",
                bytes_max=limits.LIST_BYTES_MAX,
            )

    def end(self, place: str | int) -> None:
        """There is more behind this place."""
        self.next_token = _VERSION + str(place).encode()


def _no_token() -> errors.InvalidArgument:
    return errors.InvalidArgument("page_token is none of this list's", field="page_token")


async def by_name(
    page: Page,
    ask: Callable[[str, int], list[InfoT]],
    name_of: Callable[[InfoT], str],
    make: Callable[[InfoT], ListedT],
    is_shown: Callable[[str], bool],
) -> list[ListedT]:
    """The items of a page: `ask` for so many behind a name; not of names that are not shown."""
    made: list[ListedT] = []
    after = last_shown = page.after_name
    while infos := ask(after, AT_ONCE):
        for info in infos:
            if is_shown(name_of(info)):
                if page.is_full:
                    page.end(last_shown)
                    return made
                item = make(info)
                page.add(1, item.ByteSize())
                made.append(item)
                last_shown = name_of(info)
            after = name_of(info)
        await asyncio.sleep(0)
    return made
