"""A handler: a function with what it is for. Its annotations say what it wants to get."""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, get_type_hints

from hourwheel.client.groups.membership import Broadcast, as_broadcast
from hourwheel.client.message import ReceivedMessage
from hourwheel.errors import HourwheelError, InvalidArgument
from hourwheel.filter_language.text import FilterExpression
from hourwheel.workers.payloads import Decode, decoder

Function: TypeAlias = Callable[..., Any]
CONCURRENCY: Final = 16
TIME_LIMIT_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class MessageContext:
    """The message that a handler has been called for. Times are milliseconds since 1970."""

    message_id: str
    topic: str
    group: str
    body: bytes
    attempt: int
    """1 for the first delivery to the group, then rising."""
    due_ms: int
    receive_ms: int
    """The node's clock when it handed the message out."""
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] | None = None
    client_message_id: str = ""
    content_type: str = ""

    @classmethod
    def of(cls, message: ReceivedMessage, group: str) -> "MessageContext":
        """Of a message that was received for a group.

        Raises:
            InvalidBatch: its bytes are not those that were sent.
            InvalidArgument: its metadata are none.
        """
        meta = message.meta
        return cls(
            str(message.message_id),
            message.topic,
            group,
            message.body,
            message.attempt,
            message.due_ms,
            message.receive_ms,
            meta.tags,
            meta.keys,
            dict(meta.properties),
            meta.client_message_id,
            meta.content_type,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """One function, and the messages that it is for."""

    function: Function
    topic: str
    """Or a pattern, in which * stands for any text and ? for a character."""
    group: str
    filter: str | FilterExpression | None
    concurrency: int
    """Messages at one time, in each process."""
    time_limit_ms: int
    invisible_ms: int
    """How long messages are leased at first, 0: as the group is set up. Leases are made longer
    while a handler runs."""
    is_coroutine: bool
    decode: Decode | None
    """None: the function takes no payload."""
    context_name: str
    """The parameter that takes the `MessageContext`; empty: none."""
    is_payload_optional: bool = False
    """Its parameter has a default."""
    broadcast: Broadcast | None = None
    """Each worker gets every message; None: one of all workers gets it."""

    @property
    def has_pattern(self) -> bool:
        """Whether `topic` is one."""
        return "*" in self.topic or "?" in self.topic

    @property
    def name(self) -> str:
        """For logs and metrics."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    def arguments(self, context: MessageContext) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What to call the function with.

        Raises:
            InvalidPayload: the body is not what it takes.
        """
        named = {self.context_name: context} if self.context_name else {}
        is_empty = not (context.body or context.content_type)
        if self.decode is None or (is_empty and self.is_payload_optional):
            return (), named
        return (self.decode(context.body, context.content_type),), named


def make_handler(
    function: Function,
    topic: str,
    group: str,
    *,
    filter: str | FilterExpression | None = None,  # noqa: A002 - as in the client
    concurrency: int = CONCURRENCY,
    time_limit_ms: int = TIME_LIMIT_MS,
    invisible_ms: int = 0,
    broadcast: bool | Broadcast = False,
) -> Handler:
    """A handler of `function`.

    Raises:
        InvalidArgument: its parameters are not (payload), (payload, context), (context) or none, or
            a broadcast has a pattern for its topic, or makes no sense.
    """
    signature = _read_signature(function)
    made = Handler(
        function=function,
        topic=topic,
        group=group,
        filter=filter,
        concurrency=concurrency,
        time_limit_ms=time_limit_ms,
        invisible_ms=invisible_ms,
        is_coroutine=inspect.iscoroutinefunction(function),
        decode=signature.decode,
        context_name=signature.context_name,
        is_payload_optional=signature.is_payload_optional,
        broadcast=as_broadcast(broadcast),
    )
    if made.broadcast is not None and made.has_pattern:
        raise InvalidArgument("a broadcast is of topics, and not of a pattern")
    return made


def about(name: str, error: HourwheelError) -> HourwheelError:
    """The same error, whose text begins with what of the program it is about."""
    shown = copy.copy(error)
    shown.args = (f"{name}: {error.message}",)
    return shown


class _Signature(NamedTuple):
    decode: Decode | None = None
    context_name: str = ""
    is_payload_optional: bool = False


def _read_signature(function: Function) -> _Signature:
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isclass(function) or not callable(function):
        raise InvalidArgument(f"{name} is no function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidArgument(f"{name} is a generator: a handler returns, and does not yield")
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise InvalidArgument(f"an annotation of {name} is not known yet: {error}") from None
    except TypeError:  # partials, and objects that can be called
        raise InvalidArgument(f"{name} is no function: wrap it in one") from None
    context_name = ""
    payloads: list[inspect.Parameter] = []
    for parameter in _parameters(function, name):
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            raise InvalidArgument(f"{name} takes {parameter}: name what it takes")
        if hints.get(parameter.name) is MessageContext:
            context_name = parameter.name
        elif parameter.default is parameter.empty or _takes_payload(parameter, payloads):
            payloads.append(parameter)
    if not payloads:
        return _Signature(context_name=context_name)
    if len(payloads) > 1 or payloads[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise InvalidArgument(
            f"{name} takes {len(payloads)} arguments: a handler takes the payload, and where it "
            f"wants one a MessageContext"
        )
    payload = payloads[0]
    decode = decoder(hints.get(payload.name, Any))
    return _Signature(decode, context_name, payload.default is not payload.empty)


def _parameters(function: Function, name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise InvalidArgument(f"{name} does not say what it takes: wrap it in a function") from None


def _takes_payload(parameter: inspect.Parameter, payloads: list[inspect.Parameter]) -> bool:
    """Whether one with a default is the payload: the first that is given by position."""
    return not payloads and parameter.kind is not inspect.Parameter.KEYWORD_ONLY
