"""Around each call of the API: admission, metrics, errors. Few steps: Publish is a hot path.

The handlers take and give bytes: the size is known before anything is parsed, so a request over the
limits costs no objects, and one that is no protobuf message gets a typed error. Interceptors of
grpc.aio would do the same with more coroutines a call.
"""

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import grpc
from google.protobuf.message import DecodeError

from hourwheel import errors
from hourwheel.clock import Clock
from hourwheel.transport import grpc_status
from node.access.audit import AUDITED, AuditLog
from node.access.authentication import claimed_name
from node.access.control import CALLER, AccessControl, Identify, login_holds
from node.access.permissions import RULES
from node.access.quotas import Quotas, Work
from node.api.admission import Admission
from node.api.message_access import MessageAccess
from node.api.unread_answers import is_list, is_read
from node.contracts.access import ANONYMOUS
from node.telemetry import logs
from node.telemetry.failure import Failure
from node.telemetry.spans import in_steps

Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
UnaryHandler: TypeAlias = Callable[[bytes, Context], Awaitable[bytes]]
StreamHandler: TypeAlias = Callable[[Any, Context], Awaitable[None]]
RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")
FormT = TypeVar("FormT")


class _Status(NamedTuple):
    code: grpc.StatusCode
    details: str
    trailing_metadata: tuple[tuple[str, str | bytes], ...]


class PassedOn(Exception):
    """Another node's error, which the caller gets as it is; never seen above the API."""

    def __init__(
        self,
        code: grpc.StatusCode,
        details: str,
        trailing_metadata: tuple[tuple[str, str | bytes], ...],
    ) -> None:
        """As the other node said it."""
        super().__init__(details)
        self.status = cast("grpc.Status", _Status(code, details, trailing_metadata))
        """For `abort_with_status`."""


class CallContext(Protocol):
    """What a method's implementation may know of its call, unary or of a session."""

    def time_remaining(self) -> float | None:
        """Seconds for which the caller waits for the answer; None: as long as it takes."""
        ...

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Have `callback` called when the caller has read the answer, or is gone."""
        ...

    def peer(self) -> str:
        """Who calls."""
        ...


class Refusal(Generic[FormT]):
    """What the caller of a call that failed gets. Leads to no traceback: see `Calls.refuse`."""

    __slots__ = ("form",)

    def __init__(self, form: FormT) -> None:
        """In the caller's form."""
        self.form = form


class Encodable(Protocol):
    """A message, or what already is in bytes."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - as protobuf names it
        """Its bytes."""
        ...


class Encoded(NamedTuple):
    """What is in bytes already."""

    raw: bytes

    def SerializeToString(self) -> bytes:  # noqa: N802 - as messages have it
        """They are these."""
        return self.raw


ResponseT = TypeVar("ResponseT", bound=Encodable)

FATAL: Final = (errors.InvariantViolated, errors.FsyncFailed, errors.DiskFailed)
"""After these the process must not go on: what it holds in memory or on disk cannot be trusted."""
_DENIED: Final = (errors.PermissionDenied, errors.Unauthenticated)
"""Because of who calls."""
_LOCAL: Final = (errors.DataLoss, errors.FsyncFailed, errors.DiskFailed)
"""What is wrong with this node, not with the request."""

_RECEIVE: Final = "Receive"
_POLLS: Final = frozenset({_RECEIVE, "PollChecks"})
_SECONDS: Final = 0.001
_log = logs.get(__name__)


class Calls:
    """What all calls of one server share."""

    def __init__(
        self,
        admission: Admission,
        clock: Clock,
        failure: Failure,
        access: AccessControl,
        identify: Identify | None = None,
        audit: AuditLog | None = None,
        quotas: Quotas | None = None,
        *,
        is_first_hand: bool = True,
    ) -> None:
        """Calls of one server.

        Args:
            admission: counts what is in flight.
            clock: for how long calls take.
            failure: gets what must end the process.
            access: who may do what.
            identify: says who calls; None: all are anonymous.
            audit: gets who did what; None: the log does.
            quotas: how much each may have under way; None: as much as it likes.
            is_first_hand: connections are the callers' own, and not another node's.
        """
        self._is_first_hand = is_first_hand
        self._quotas = Quotas() if quotas is None else quotas
        self.admission = admission
        self.access = access
        self._identify = identify
        self._audit = AuditLog(clock) if audit is None else audit
        self.stats = admission.stats
        self.clock = clock
        self._failure = failure

    async def find_refusal(
        self, method: str, context: Context, opens: Work | None = None
    ) -> grpc.Status | None:
        """Note who calls, for all that is done for this call; or why the call is to be refused.

        Before anything of it is read: a stranger costs no more than that.

        Args:
            method: its full name.
            context: of the call.
            opens: what it counts as while it is open; None: it is unary, and counts in `attempt`.
        """
        if self._identify is not None:
            try:
                CALLER.set(await self._identify(context))
            except errors.HourwheelError as error:
                metadata = context.invocation_metadata
                self._audit.note_denied(
                    ANONYMOUS,
                    method,
                    error,
                    context.peer(),
                    lambda: claimed_name(metadata() or ()),
                )
                return self.refuse(method, error, context, grpc_status.to_status)[1]
        if self._quotas.is_on:
            try:
                self._begin(context, opens)
            except errors.ResourceExhausted as error:
                return self.refuse(method, error, context, grpc_status.to_status)[1]
        return None

    def _begin(self, context: Context, opens: Work | None) -> None:
        """Count the caller's connection, and what it opens, until gRPC's call ends.

        Raises:
            QuotaExceeded, QuotaReached: there are too many.
        """
        quotas, name, connection = self._quotas, CALLER.get().name, context.peer()
        if opens is not None:
            quotas.begin_call(name, opens)
            end_opened = partial(quotas.end_call, name, opens)
            context.add_done_callback(lambda _: end_opened())  # type: ignore[arg-type]
        if self._is_first_hand:
            quotas.begin_on(name, connection)
            end = partial(quotas.end_on, name, connection)
            context.add_done_callback(lambda _: end())  # type: ignore[arg-type]

    def find_parting(self) -> errors.HourwheelError | None:
        """Why the node ends a stream of which it reads no more; None: the client has ended it."""
        return errors.ShuttingDown() if self.admission.is_draining else self.find_login_end()

    def find_login_end(self) -> errors.HourwheelError | None:
        """Why what the caller has shown counts no more; None: it does."""
        if self.admission.login_left_ms() == 0.0:
            return errors.LoginEnded()
        return None if login_holds() else errors.Unauthenticated()

    def checked(
        self,
        method: str,
        implement: Callable[[RequestT, Any], Coroutine[Any, Any, AnswerT]],
        messages: MessageAccess | None = None,
    ) -> Callable[[RequestT, Any], Coroutine[Any, Any, AnswerT]]:
        """`implement`, for callers who may: the one place where each call is checked.

        Args:
            method: its full name; one that `RULES` does not have is a mistake of ours.
            implement: does it.
            messages: is asked where messages are named by id; None: that needs all topics.
        """
        errors.invariant(method in RULES, "each method says what it needs", method=method)
        rule, check, audit = RULES[method], self.access.check, self._audit

        async def check_and_implement(request: RequestT, context: CallContext) -> AnswerT:
            try:
                try:
                    check(rule, request)
                except errors.PermissionDenied as denied:
                    if messages is None or rule.ids is None:
                        raise
                    await messages.check(rule, request, denied)
                return await implement(request, context)
            except _DENIED as error:
                audit.note_denied(CALLER.get(), method, error, context.peer())
                raise

        async def note(request: RequestT, context: CallContext) -> AnswerT:
            outcome = "CANCELLED"
            try:
                answer = await check_and_implement(request, context)
            except _DENIED:
                outcome = ""  # it is noted
                raise
            except Exception as error:
                outcome = grpc_status.public(error).reason
                raise
            else:
                outcome = "OK"
                return answer
            finally:
                if outcome:
                    resources = rule.resources(request)
                    audit.note(CALLER.get(), method, resources, outcome, context.peer(), request)

        return note if method in AUDITED else check_and_implement

    def checked_stream(self, method: str, serve: StreamHandler) -> StreamHandler:
        """The same for the opening of a stream."""
        errors.invariant(method in RULES, "each method says what it needs", method=method)
        rule, check = RULES[method], self.access.check

        async def handle(requests: Any, context: Context) -> None:
            try:
                check(rule, None)
            except _DENIED as error:
                self._audit.note_denied(CALLER.get(), method, error, context.peer())
                _, refusal = self.refuse(method, error, context, grpc_status.to_status)
            else:
                await serve(requests, context)
                return
            await context.abort_with_status(refusal)

        return handle

    def unary(
        self,
        method: str,
        parse: Callable[[bytes], RequestT],
        implement: Callable[[RequestT, Any], Coroutine[Any, Any, ResponseT]],
    ) -> UnaryHandler:
        """The handler of one unary method, from bytes to bytes."""
        unread, holds_room = self.admission.unread, method == _RECEIVE or is_read(method)
        checks_room = is_list(method)

        async def read_and_implement(raw: bytes, context: CallContext) -> Encodable:
            return await implement(parse(raw), context)

        async def read_and_hold(raw: bytes, context: CallContext) -> Encodable:
            if checks_room:
                unread.check_list()
            answer = Encoded((await implement(parse(raw), context)).SerializeToString())
            unread.hold_read(len(answer.raw), context)
            return answer

        span = self.stats.spans.span(method)
        work = read_and_hold if is_read(method) else read_and_implement
        attempt = self.attempt(method, work, grpc_status.to_status)

        async def handle(raw: bytes, context: Context) -> bytes:
            # The stub has a class where a Protocol is meant.
            of_call = cast(CallContext, context)
            answer = await attempt(raw, len(raw), of_call)
            if not isinstance(answer, Refusal):
                with span:
                    encoded = answer.SerializeToString()
                if not holds_room:  # else it has taken it before
                    unread.hold_write(len(encoded), of_call)
                return encoded
            # Without the request: what is aborted stays in memory for long, in a circle of the
            # context and gRPC's error with its traceback and its cause.
            del raw
            return await context.abort_with_status(answer.form)

        return handle

    def attempt(
        self,
        method: str,
        implement: Callable[[RequestT, CallContext], Coroutine[Any, Any, AnswerT]],
        tell: Callable[[errors.HourwheelError], FormT],
        *,
        is_counted: bool = True,
    ) -> Callable[[RequestT, int, CallContext], Awaitable[AnswerT | Refusal[FormT]]]:
        """All that surrounds a call of `method`, however it came: takes (request, size, context).

        Args:
            method: its name in the metrics.
            implement: does it.
            tell: the form in which its caller gets an error.
            is_counted: by the caller's quota; else what it belongs to is.
        """
        work = Work.POLL if method in _POLLS else Work.CALL
        admission, stats, quotas = self.admission, self.stats.method(method), self._quotas
        span = self.stats.spans.span(method)
        monotonic_ms = self.clock.monotonic_ms

        async def attempt(
            request: RequestT, size: int, context: CallContext
        ) -> AnswerT | Refusal[FormT]:
            started_ms = monotonic_ms()
            code, counted = "CANCELLED", None
            try:
                if is_counted and quotas.is_on:
                    name = CALLER.get().name
                    quotas.begin_call(name, work)
                    counted = name
                admission.enter(size)
                try:
                    answer = await in_steps(implement(request, context), span)
                finally:
                    admission.leave(size)
            except PassedOn as passed:
                code = passed.status.code.name
                return Refusal(cast("FormT", passed.status))
            except Exception as error:  # noqa: BLE001 - a bug of ours must not look like the network
                code, form = self.refuse(method, error, context, tell)
                return Refusal(form)
            else:
                code = "OK"
                return answer
            finally:
                if counted is not None:
                    quotas.end_call(counted, work)
                stats.count(code, (monotonic_ms() - started_ms) * _SECONDS)

        return attempt

    def refuse(
        self,
        method: str,
        error: Exception,
        context: "CallContext | Context",
        tell: Callable[[errors.HourwheelError], FormT],
    ) -> tuple[str, FormT]:
        """(name of the code, what `tell` makes of the error for the caller): see `public_error`.

        A handler must not keep the error in a variable of its own: its traceback leads back to the
        handler's frame, so that the request would stay in memory until cycles are looked for.
        """
        public = self.public_error(method, error, context)
        return public.code, tell(public)

    def public_error(
        self, method: str, error: Exception, context: "CallContext | Context"
    ) -> errors.HourwheelError:
        """What the caller gets of `error`. Counts refusals; faults of ours are logged."""
        if isinstance(error, DecodeError):
            error = errors.InvalidArgument(f"this is no request of {method}")
        if not isinstance(error, errors.HourwheelError):
            _log.error("call_failed", method=method, peer=context.peer(), exc_info=error)
        elif isinstance(error, errors.Internal | errors.DataLoss):
            _log.error("call_failed", method=method, **logs.fields_of(error))
        public = grpc_status.public(error)
        if isinstance(public, FATAL):
            self._failure.report(public)
        if self._failure.found.done() and isinstance(public, _LOCAL):
            # Another node has what is lost here, or this one after a start: trying again helps.
            public = errors.Timeout("the node stops, its disk is not well: the outcome is unknown")
        self.stats.reject(public.reason)
        if isinstance(public, errors.QuotaExceeded | errors.QuotaReached):
            self.stats.reject_by_quota(public.params["quota"])
        return public
