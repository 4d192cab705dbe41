"""What the pages ask for, and what they may do: a function for each path. On the node's loop.

Reading is GET, with the question in the address. Changing is POST, with JSON; each change is looked
at twice: whether anything can be changed now (else it says why not), and by the cluster itself.
Each is logged.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar, Final, NamedTuple, TypeAlias

from hourwheel import errors
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.groups.positions import GroupReset
from hourwheel.client.message import Message
from hourwheel.client.producer import AsyncProducer
from hourwheel.filter_language.text import FilterExpression
from hourwheel.transport.access import PLAIN, Access
from hourwheel.transport.channel import Channel
from hourwheel.types import NodeId
from node.console import fields
from node.console.operations import Operations, Query
from node.console.views import Views
from node.telemetry import logs

PREFIX: Final = "/api/"
_CALL_MS: Final = 8_000.0
"""A call to the cluster is tried for so long: a person waits."""
_HARMLESS: Final = {"count", "count-reset", "stop"}
"""Work for the node, but no change."""
_log = logs.get(__name__)

Given: TypeAlias = Mapping[str, object]
"""Fields of a request."""
Handler: TypeAlias = Callable[["Api", Given], Awaitable[dict[str, object]]]


@dataclass(frozen=True, slots=True)
class Home:
    """The node behind the console."""

    node_id: NodeId
    address: str
    """Where its API is reached from here, host:port."""
    changes_allowed: bool
    """Whether the configuration lets the console change anything."""
    access: Access = PLAIN
    """How the nodes are known."""


class Api:
    """See the top of this file. `close` it on the loop that has used it."""

    def __init__(
        self, home: Home, *, now_ms: Callable[[], int], monotonic_ms: Callable[[], float]
    ) -> None:
        """Nothing is asked yet. Clocks: see `Views`."""
        access = home.access
        self._channel = Channel(
            home.address,
            tls=access.tls,
            token=access.token,
            user=access.user,
            call_timeout_ms=_CALL_MS,
        )
        self._admin = AsyncAdmin(self._channel)
        self._views = Views(
            home.node_id,
            home.address,
            self._admin,
            access=home.access,
            changes_allowed=home.changes_allowed,
            now_ms=now_ms,
            monotonic_ms=monotonic_ms,
        )
        self._operations = Operations(self._admin)

    async def close(self) -> None:
        """Stop what runs, and close the connections."""
        await self._operations.close()
        await self._views.close()
        await self._channel.close()

    async def check(self) -> None:
        """Whether the node lets it ask at all. Raises HourwheelErrors."""
        await self._admin.status()

    def has(self, name: str, *, is_change: bool) -> bool:
        """Whether there is such a question, or change."""
        return name in (self.CHANGES if is_change else self.READS)

    async def read(self, name: str, given: Given) -> dict[str, object]:
        """What a page asks. Raises HourwheelErrors."""
        return await self.READS[name](self, given)

    async def change(self, name: str, given: Given) -> dict[str, object]:
        """Do what a page asks. Raises HourwheelErrors.

        Raises:
            Unavailable: nothing can be changed now; its message says why.
        """
        why = await self._views.read_only_because()
        if why and name not in _HARMLESS:
            raise errors.Unavailable(why)
        done = await self.CHANGES[name](self, given)
        self._views.forget()
        return done

    # --- reading --------------------------------------------------------------------------------

    async def _cluster(self, given: Given) -> dict[str, object]:
        return await self._views.cluster(fields.number(given, "since_ms", 0))

    async def _wheel(self, given: Given) -> dict[str, object]:
        return await self._views.wheel(
            fields.number(given, "from_ms"),
            fields.number(given, "step_ms"),
            fields.number(given, "count"),
        )

    async def _topics(self, given: Given) -> dict[str, object]:
        return await self._views.topics(
            fields.text(given, "search", ""), fields.text(given, "after", "")
        )

    async def _groups(self, given: Given) -> dict[str, object]:
        return await self._views.groups(
            fields.text(given, "search", ""), fields.text(given, "after", "")
        )

    async def _access(self, given: Given) -> dict[str, object]:
        return await self._views.access(fields.text(given, "search", ""))

    async def _message(self, given: Given) -> dict[str, object]:
        return await self._views.message(fields.text(given, "id").strip().lower())

    async def _pending(self, given: Given) -> dict[str, object]:
        query = _query(given)
        wanted = None if query.filter == FilterExpression.everything() else query.filter
        return await self._views.pending(query.topic, wanted, query.from_ms, query.to_ms)

    async def _operation(self, given: Given) -> dict[str, object]:
        return self._operations.read(fields.number(given, "number"))

    # --- changing -------------------------------------------------------------------------------

    async def _publish(self, given: Given) -> dict[str, object]:
        topic = fields.text(given, "topic")
        due_ms = fields.number(given, "due_ms", 0)
        message = Message(
            fields.text(given, "body", "").encode(),
            delay_ms=None if due_ms else fields.number(given, "delay_ms", 0),
            due_ms=due_ms or None,
            tags=fields.texts(given, "tags"),
            keys=fields.texts(given, "keys"),
            properties=fields.pairs(given, "properties"),
            content_type=fields.text(given, "content_type", ""),
        )
        async with AsyncProducer(self._channel, delivery_timeout_ms=_CALL_MS) as producer:
            message_id = str(await producer.publish(topic, message))
        _log.info("console_published", topic=topic, message_id=message_id)
        return {"message_id": message_id}

    async def _cancel(self, given: Given) -> dict[str, object]:
        message_id = fields.text(given, "message_id")
        outcome = await self._admin.cancel(message_id)
        _log.info("console_cancelled", message_id=message_id, outcome=outcome.name)
        return {"outcome": outcome.name}

    async def _count(self, given: Given) -> dict[str, object]:
        return self._operations.start_count(_query(given))

    async def _cancel_counted(self, given: Given) -> dict[str, object]:
        return self._operations.start_cancel(fields.number(given, "number"))

    async def _stop(self, given: Given) -> dict[str, object]:
        return self._operations.stop(fields.number(given, "number"))

    async def _transfer(self, given: Given) -> dict[str, object]:
        to = fields.text(given, "to")
        # The operator who confirmed it saw this epoch, and knows nothing of a later one.
        seen = fields.number(given, "epoch")
        shard = (await self._views.cluster(0))["shard"]
        if shard is None or shard["epoch"] != seen:
            raise errors.FailedPrecondition("the master has changed meanwhile: look again")
        found = await self._admin.transfer_master(to)
        _log.warning("console_transferred", to=found.master, epoch=found.epoch)
        return {"master": found.master, "epoch": found.epoch}

    # The operator who confirmed a change of these saw a version, and knows nothing of a later one.

    async def _grant(self, given: Given) -> dict[str, object]:
        of = _grant_of(given)
        operations = fields.texts(given, "operations")
        if not operations:
            raise errors.InvalidArgument("a grant allows something", field="operations")
        version = await self._admin.grant(
            of.principal,
            operations,
            of.kind,
            of.resource,
            expected_version=fields.number(given, "expected_version"),
        )
        _log.warning(
            "console_granted",
            principal=of.principal,
            kind=of.kind,
            resource=of.resource,
            operations=sorted(operations),
        )
        return {"version": version}

    async def _revoke(self, given: Given) -> dict[str, object]:
        of = _grant_of(given)
        version = fields.number(given, "expected_version")
        await self._admin.revoke(*of, expected_version=version)
        _log.warning("console_revoked", principal=of.principal, kind=of.kind, resource=of.resource)
        return {}

    async def _retention(self, given: Given) -> dict[str, object]:
        topic = await self._admin.update_topic(
            fields.text(given, "topic"),
            retention_ms=fields.number(given, "retention_ms"),
            expected_version=fields.number(given, "expected_version"),
        )
        _log.warning("console_retention_changed", topic=topic.name, retention_ms=topic.retention_ms)
        return {"retention_ms": topic.retention_ms, "version": topic.version}

    async def _count_reset(self, given: Given) -> dict[str, object]:
        return asdict(await self._reset_as_requested(given, count_only=True))

    async def _reset(self, given: Given) -> dict[str, object]:
        done = await self._reset_as_requested(given, count_only=False)
        _log.warning(
            "console_group_reset",
            group=fields.text(given, "group"),
            topic=fields.text(given, "topic"),
            again_count=done.again_count,
            skipped_count=done.skipped_count,
        )
        return asdict(done)

    async def _reset_as_requested(self, given: Given, *, count_only: bool) -> GroupReset:
        to, to_ms = fields.text(given, "to", ""), fields.number(given, "to_ms", 0)
        if to not in {"", "first", "now"} or bool(to) == bool(to_ms):
            raise errors.InvalidArgument('give to ("first" or "now") or to_ms', field="to")
        group, topic = fields.text(given, "group"), fields.text(given, "topic")
        return await self._admin.reset_group(group, topic, to or to_ms, count_only=count_only)

    READS: ClassVar[Mapping[str, Handler]] = {
        "cluster": _cluster,
        "wheel": _wheel,
        "topics": _topics,
        "groups": _groups,
        "access": _access,
        "message": _message,
        "pending": _pending,
        "operation": _operation,
    }
    """What may be asked; tests walk it."""
    CHANGES: ClassVar[Mapping[str, Handler]] = {
        "publish": _publish,
        "cancel": _cancel,
        "count": _count,
        "cancel-counted": _cancel_counted,
        "stop": _stop,
        "transfer": _transfer,
        "grant": _grant,
        "revoke": _revoke,
        "retention": _retention,
        "count-reset": _count_reset,
        "reset": _reset,
    }
    """What may be done; likewise."""


class _GrantOf(NamedTuple):
    """Which grant."""

    principal: str
    kind: str
    resource: str


def _grant_of(given: Given) -> _GrantOf:
    return _GrantOf(
        fields.text(given, "principal"),
        fields.text(given, "kind"),
        fields.text(given, "resource", ""),
    )


def _query(given: Given) -> Query:
    return Query(
        fields.text(given, "topic"),
        fields.wanted(given),
        fields.number(given, "from_ms", 0),
        fields.number(given, "to_ms", 0),
    )
