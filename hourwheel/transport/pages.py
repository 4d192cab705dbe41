"""Calls that answer page by page: each answer says where the next one goes on."""

from collections.abc import AsyncIterator, Callable
from dataclasses import fields
from typing import Any, Protocol, TypeVar

from hourwheel.transport.channel import Channel
from hourwheel.transport.methods import Method, WireMessage


class PagedRequest(WireMessage, Protocol):
    """A request that says where to go on."""

    page_token: bytes


class Page(WireMessage, Protocol):
    """An answer that says where the next one goes on."""

    next_page_token: bytes
    """Empty: it is the last one."""


RequestT = TypeVar("RequestT", bound=PagedRequest)
PageT = TypeVar("PageT", bound=Page)
DoneT = TypeVar("DoneT")


async def pages_of(
    channel: Channel, method: Method[RequestT, PageT], request: RequestT
) -> AsyncIterator[PageT]:
    """All answers to a request, one call after the other. Raises as `Channel.call`.

    Changes the request's token, and begins with the one that it has.
    """
    while True:
        answer = await channel.call(method, request)
        yield answer
        request.page_token = answer.next_page_token
        if not request.page_token:
            return


async def sum_of_pages(
    channel: Channel,
    method: Method[RequestT, PageT],
    request: RequestT,
    done: DoneT,
    on_progress: Callable[[DoneT], None] | None = None,
) -> DoneT:
    """What a call that changes many things has done, in all its pages. Raises as `Channel.call`.

    Args:
        channel: the way to the nodes.
        method: the call.
        request: see `pages_of`.
        done: a dataclass of counts, to which the answers' fields of the same names are added.
        on_progress: called with the sum behind each page.
    """
    names = [one.name for one in fields(done)]  # type: ignore[arg-type]
    counts: Any = type(done)
    async for answer in pages_of(channel, method, request):
        done = counts(*(getattr(done, name) + getattr(answer, name) for name in names))
        if on_progress is not None:
            on_progress(done)
    return done
