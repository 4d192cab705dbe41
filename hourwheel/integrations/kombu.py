"""Hourwheel as a broker of Celery: a transport of kombu.

    import hourwheel.integrations.kombu

    app = Celery("shop", broker="hourwheel://127.0.0.1:7400")

A task with an `eta` or a `countdown` is published with that due time: it waits in the wheel, and
comes to a worker when it is due, which runs it at once. `app.control.revoke` cancels tasks that are
not due yet, by their id, beside what Celery does itself. A queue is a topic, and all workers are
one consumer group; what a worker holds stays leased to it as long as it lives. What is broadcast
(remote control) goes to a topic from which each worker gets all, as a group of its own.

No gRPC is in Celery's processes, for they fork: `hourwheel.integrations.bridge`.
"""

import json
import socket
import sys
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from queue import Empty
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kombu.exceptions import ChannelError
from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.transport.virtual import base

import hourwheel
from hourwheel import errors
from hourwheel.clock import SystemClock
from hourwheel.formats.frames import Frame
from hourwheel.integrations.bridge import Bridge, Target
from hourwheel.integrations.names import topic_of

DEFAULT_PORT: Final = 7400
DEFAULT_GROUP: Final = "celery"
INVISIBLE_MS: Final = 60_000
"""Who holds a task and is killed together with its bridge process, as when a machine dies, keeps it
from others so long. All other ends of a worker are noticed at once."""
CONNECT_S: Final = 5
"""Where `broker_connection_timeout` says nothing."""
_ALIAS: Final = "hourwheel"
_CLASS: Final = "hourwheel.integrations.kombu:Transport"
_REVOKE: Final = "revoke"
_FANOUT_TOPIC: Final = "fanout."
_EVENTS_EXCHANGE: Final = "celeryev"
_KEYS_MAX: Final = 500
"""Of one request: with the longest keys there are it is below the most that a frame has."""
_clock: Final = SystemClock()
_declared: Final[dict[str, set[str]]] = {}
"""Queues that this process has declared, by virtual host."""


def register() -> None:
    """Let kombu know of URLs that begin with `hourwheel://`; importing this module does."""
    TRANSPORT_ALIASES[_ALIAS] = _CLASS


class QoS(virtual.QoS):
    """What is not acknowledged yet; the bridge process holds the leases, and counts."""

    def ack(self, delivery_tag: str) -> None:
        """The task is done, or begun where Celery acknowledges early."""
        super().ack(delivery_tag)
        self.channel.bridge.tell("ack", tags=[int(delivery_tag)])

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Not done: it comes again at once, or is a dead letter of the group."""
        message = self._delivered.get(delivery_tag)
        super().ack(delivery_tag)
        bridge, tags = self.channel.bridge, [int(delivery_tag)]
        if requeue:
            bridge.tell("nack", tags=tags, delay_ms=0)
        else:
            bridge.tell("reject", tags=tags, reason=_why_rejected(message))


def _why_rejected(message: virtual.Message | None) -> str:
    """As far as it is known here: which task. Celery tells its log why, and no transport."""
    task = None if message is None else message.headers.get("task")
    what = f"task {task}" if isinstance(task, str) else "it"
    return f"its worker, whose log says why, rejected {what}"


class Message(virtual.Message):
    """A message, also where another program than kombu has published it."""

    def __init__(self, payload: dict[str, Any], channel: Any = None, **kwargs: Any) -> None:
        """As kombu makes them. The worker must not end by what kombu cannot read, but reject it."""
        try:
            super().__init__(payload, channel, **kwargs)
        except (ValueError, TypeError, KeyError, AttributeError):
            tag = payload["properties"]["delivery_tag"]
            super().__init__(_foreign(tag, str(payload.get("body"))), channel, **kwargs)


class Channel(virtual.Channel):
    """A channel of a connection; its queues are topics."""

    QoS = QoS
    Message = Message
    supports_fanout = True

    def __init__(self, connection: "Transport", **kwargs: Any) -> None:
        """As kombu makes them."""
        super().__init__(connection, **kwargs)
        self._consumer_numbers: dict[str, int] = {}

    @property
    def bridge(self) -> Bridge:
        """The bridge process's end of the connection. Raises Unavailable."""
        if self.connection is None:
            raise errors.Unavailable("the channel is closed")
        found: Bridge = self.connection.bridge
        return found

    # --- publishing -----------------------------------------------------------------------------

    def _put(self, queue: str, message: dict[str, Any], **_: object) -> None:
        headers = message.get("headers") or {}
        due_ms = due_ms_of(headers.get("eta"), _zone)
        self.bridge.call(
            "publish",
            _encode(message),
            topic=self._topic(queue),
            due_ms=due_ms,
            expire_after_ms=_expire_after_ms(message["properties"].get("expiration"), due_ms),
            key=key_of(headers),
            priority=self._get_message_priority(message),
        )

    def _put_fanout(
        self, exchange: str, message: dict[str, Any], routing_key: str, **_: object
    ) -> None:
        body = _encode(message)
        revoked = self._find_revoked(message) if exchange.endswith(".pidbox") else []
        topics = [self._topic(one) for one in sorted(self.connection.client_queues)]
        for first in range(0, len(revoked), _KEYS_MAX):
            keys = revoked[first : first + _KEYS_MAX]
            self.bridge.call("cancel", keys=keys, group=self._group, topics=topics)
        self.bridge.call(
            "publish",
            body,
            topic=self._topic(_FANOUT_TOPIC + exchange),
            due_ms=None,
            expire_after_ms=_expire_after_ms(message["properties"].get("expiration"), None),
            key="",
            priority=0,
        )

    def _find_revoked(self, message: dict[str, Any]) -> list[str]:
        """The ids of tasks that this broadcast revokes."""
        try:
            body = self.decode_body(message["body"], message["properties"].get("body_encoding"))
            said = json.loads(body)
            ids = said["arguments"]["task_id"] if said["method"] == _REVOKE else []
        except (KeyError, TypeError, ValueError):
            return []  # another serializer, or another command
        return [ids] if isinstance(ids, str) else [one for one in ids if isinstance(one, str)]

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> list[str]:
        """As virtual channels do, and replies to remote control: who asked declared their queue."""
        if exchange.startswith("reply.") and exchange.endswith(".pidbox"):
            return [f"{routing_key}.{exchange}"]
        found: list[str] = super()._lookup(exchange, routing_key, default)
        return found

    # --- queues ---------------------------------------------------------------------------------

    def _topic(self, queue: str) -> str:
        return topic_of(queue, self.connection.virtual_host)

    @property
    def _group(self) -> str:
        return topic_of(self.connection.group, self.connection.virtual_host)

    def exchange_declare(
        self,
        exchange: str | None = None,
        type: str = "direct",  # noqa: A002 - kombu's
        **settings: Any,
    ) -> None:
        """As virtual channels do. Events go to all who listen where that is asked for."""
        if self.connection.has_events and (exchange or "").startswith(_EVENTS_EXCHANGE):
            type = "fanout"  # noqa: A001
        super().exchange_declare(exchange, type, **settings)

    def queue_declare(
        self,
        queue: str | None = None,
        passive: bool = False,
        **settings: Any,
    ) -> base.queue_declare_ok_t:
        """As virtual channels do; only a passive one asks how many messages there are."""
        queue = queue or f"amq.gen-{self._next_delivery_tag()}"
        if settings.get("auto_delete"):
            self.connection.temporary_queues.add(queue)
        else:
            self.connection.client_queues.add(queue)
        return base.queue_declare_ok_t(queue, self._size(queue) if passive else 0, 0)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        if self.typeof(exchange).type != "fanout":
            return
        topic = self._topic(_FANOUT_TOPIC + exchange)
        self.connection.fanout_queues[queue] = topic
        self.bridge.call("bind", topic=topic, group=self._topic(queue))

    def _source(self, queue: str) -> tuple[str, str]:
        """Topic and group that a queue's messages come from."""
        shared = self.connection.fanout_queues.get(queue)
        return (self._topic(queue), self._group) if shared is None else (shared, self._topic(queue))

    def _size(self, queue: str) -> int:
        """How many messages are due and not leased."""
        topic, group = self._source(queue)
        return int(self.bridge.call("size", topic=topic, group=group).head["ready"])

    def _purge(self, queue: str) -> int:
        topic, group = self._source(queue)
        return int(self.bridge.call("purge", topic=topic, group=group).head["count"])

    def _delete(self, queue: str, *_: object, **__: object) -> None:
        if queue in self.connection.fanout_queues:
            self.bridge.call("delete", group=self._topic(queue))
        else:
            self.bridge.call("delete", topic=self._topic(queue))

    # --- receiving ------------------------------------------------------------------------------

    def basic_qos(
        self,
        prefetch_size: int = 0,
        prefetch_count: int = 0,
        apply_global: bool = False,
    ) -> None:
        """How many messages may be held; 0: any number."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self.bridge.tell("prefetch", channel=self.channel_id, count=prefetch_count or 0)

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Callable[[virtual.Message], object],
        consumer_tag: str,
        **kwargs: Any,
    ) -> None:
        """Have messages of a queue pushed."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        number = self.connection.add_consumer(self, queue, is_no_ack=no_ack)
        self._consumer_numbers[consumer_tag] = number
        topic, group = self._source(queue)
        is_shared = queue in self.connection.fanout_queues
        self.bridge.call(
            "subscribe",
            consumer=number,
            channel=self.channel_id,
            topic=topic,
            group=group,
            is_temporary=queue in self.connection.temporary_queues and not is_shared,
        )

    def basic_cancel(self, consumer_tag: str) -> None:
        """Have no more pushed."""
        super().basic_cancel(consumer_tag)
        number = self._consumer_numbers.pop(consumer_tag, None)
        if number is not None and self.connection is not None:
            self.connection.remove_consumer(number)
            self.bridge.call("unsubscribe", consumer=number)

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        topic, group = self._source(queue)
        answer = self.bridge.call(
            "get",
            topic=topic,
            group=group,
            channel=self.channel_id,
            wait_ms=round((timeout or 0) * 1_000),
        )
        if "tag" not in answer.head:
            raise Empty
        return payload_of(answer)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        """The next message, if there is one."""
        found = super().basic_get(queue, no_ack, **kwargs)
        if found is not None and no_ack:
            self.bridge.tell("ack", tags=[int(found.delivery_tag)])
        return found

    def _restore(self, message: virtual.Message) -> None:
        """It comes again at once, to any worker."""
        self.bridge.tell("nack", tags=[int(message.delivery_tag)], delay_ms=0)

    def close(self) -> None:
        """Give back what is held. Where the bridge process is gone, it has been given back."""
        try:
            super().close()
        except errors.HourwheelError:
            if self.connection is not None:
                self.connection.close_channel(self)


class Transport(virtual.Transport):
    """A connection: one to the bridge process, for all its channels."""

    Channel = Channel
    open_bridge = staticmethod(Bridge)
    """Tests have a bridge process without a process."""
    default_port = DEFAULT_PORT
    driver_type = "hourwheel"
    driver_name = "hourwheel"
    polling_interval = None
    connection_errors = (
        errors.Unavailable,
        errors.Timeout,
        errors.Cancelled,
        errors.Forked,
        OSError,
    )
    channel_errors = (ChannelError, errors.HourwheelError)
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = ()
    implements = virtual.Transport.implements.extend(
        asynchronous=False,
        exchange_type=frozenset(["direct", "topic", "fanout"]),
        heartbeats=False,
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        """Of a `kombu.Connection`; nothing is connected yet."""
        super().__init__(client, **kwargs)
        options = client.transport_options
        self.group = str(options.get("group", DEFAULT_GROUP))
        self.has_events = bool(options.get("events", False))
        self.virtual_host = (client.virtual_host or "").strip("/")
        self.client_queues = _declared.setdefault(self.virtual_host, set())
        """Those that this process has declared, where revoked tasks may be."""
        self.temporary_queues: set[str] = set()
        """Queues that are deleted with the connection."""
        self.fanout_queues: dict[str, str] = {}
        """Queue to the topic of its exchange. All channels know it, as all know of a binding."""
        self._bridge: Bridge | None = None
        self._consumers: dict[int, tuple[virtual.Channel, str, bool]] = {}
        self._last_consumer = 0

    @property
    def bridge(self) -> Bridge:
        """Raises Unavailable where there is no connection."""
        if self._bridge is None:
            raise errors.Unavailable("not connected")
        return self._bridge

    def establish_connection(self) -> "Transport":
        """Connect. Raises HourwheelError."""
        self._bridge = self.open_bridge(target_of(self.client))
        found: Transport = super().establish_connection()
        return found

    def close_connection(self, connection: "Transport") -> None:
        """Close all channels, then the connection."""
        try:
            super().close_connection(connection)
        finally:
            if self._bridge is not None:
                self._bridge.close()
                self._bridge = None

    def driver_version(self) -> str:
        """That of Hourwheel."""
        return hourwheel.__version__

    def add_consumer(self, channel: virtual.Channel, queue: str, *, is_no_ack: bool) -> int:
        """Its number, which comes with each message for it."""
        self._last_consumer += 1
        self._consumers[self._last_consumer] = (channel, queue, is_no_ack)
        return self._last_consumer

    def remove_consumer(self, number: int) -> None:
        """What still comes for it is given back."""
        self._consumers.pop(number, None)

    def drain_events(self, connection: "Transport", timeout: float | None = None) -> None:
        """Hand the next message to its consumer.

        Raises:
            TimeoutError: there is none within `timeout` seconds.
            HourwheelError: the connection is lost.
        """
        frame = self.bridge.find_pushed(timeout)
        if frame is None:
            raise socket.timeout  # noqa: UP041 - what kombu's callers name
        tag = frame.head["tag"]
        channel, queue, is_no_ack = self._consumers.get(frame.head["consumer"], (None, "", False))
        if channel is None or queue not in self._callbacks:
            self.bridge.tell("nack", tags=[tag], delay_ms=0, not_begun=True)
            return
        if is_no_ack:
            self.bridge.tell("ack", tags=[tag])
        self._deliver(payload_of(frame), queue)


# --- from kombu's words to ours -----------------------------------------------------------------


def target_of(client: Any) -> Target:
    """Which cluster a `kombu.Connection` means.

    Its URL has a node, more of which may follow with `;` between, and a user; `broker_use_ssl` is
    true, or has `ca_certs`, `certfile` and `keyfile`.

    Raises:
        InvalidArgument: it means none.
    """
    urls = [one for one in (client.alt or ()) if one]
    servers = [_server_of(one) for one in urls] or [
        _address(client.hostname or "localhost", client.port or DEFAULT_PORT)
    ]
    tls: dict[str, str | None] | bool | None = None
    if isinstance(client.ssl, dict):
        names = {"ca": "ca_certs", "cert": "certfile", "key": "keyfile"}
        tls = {ours: client.ssl.get(theirs) for ours, theirs in names.items()}
    elif client.ssl:
        tls = True
    user = (client.userid, client.password or "") if client.userid else None
    invisible_s = client.transport_options.get("visibility_timeout")
    return Target(
        servers=",".join(dict.fromkeys(servers)),
        user=user,
        tls=tls,
        invisible_ms=INVISIBLE_MS if invisible_s is None else round(invisible_s * 1_000),
        connect_ms=round((client.connect_timeout or CONNECT_S) * 1_000),
    )


def _server_of(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"hourwheel://{url}")
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError as error:
        raise errors.InvalidArgument(
            f"{unquote(parts.netloc)!r} is no host:port: {error}"
        ) from None
    return _address(parts.hostname or "localhost", port)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def due_ms_of(eta: object, zone: Callable[[], tzinfo] = lambda: UTC) -> int | None:
    """When a task is due by its header `eta`, in milliseconds since the Unix epoch; None: at once.

    `zone` gives that of an `eta` that has none.

    Raises:
        InvalidDueTime: it is no instant.
    """
    if eta is None:
        return None
    try:
        instant = eta if isinstance(eta, datetime) else datetime.fromisoformat(str(eta))
    except ValueError:
        raise errors.InvalidDueTime(f"eta {eta!r} is no instant") from None
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=zone())
    return -(-round(instant.timestamp() * 1_000_000) // 1_000)


def expire_after_ms_of(expiration: object, due_ms: int | None, now_ms: float) -> int | None:
    """For how long after it is due a message is of use, by its property `expiration`.

    That is a number of milliseconds from now, as kombu has it for RabbitMQ. None: always, or it is
    none when the message is due: then Celery's worker, which knows what to tell of it, sees to it.
    """
    if expiration is None:
        return None
    try:
        after_ms = int(str(expiration))
    except ValueError:
        raise errors.InvalidArgument(f"expiration {expiration!r} is no number") from None
    if due_ms is None:
        return max(1, after_ms)
    left_ms = int(now_ms) + after_ms - due_ms
    return left_ms if left_ms > 0 else None


def _expire_after_ms(expiration: object, due_ms: int | None) -> int | None:
    return expire_after_ms_of(expiration, due_ms, _clock.wall_ms())


def _zone() -> tzinfo:
    """The time zone of Celery's application, by which its workers read an `eta` that has none."""
    celery = sys.modules.get("celery")
    found = UTC if celery is None else celery.current_app.timezone
    return found if isinstance(found, tzinfo) else UTC


def key_of(headers: dict[str, Any]) -> str:
    """The key by which a task is cancelled: its id; empty for what is no task."""
    found = headers.get("id")
    return found if isinstance(found, str) else ""


_write: Final = json.JSONEncoder(separators=(",", ":"), default=str).encode
"""`json.dumps` would make an encoder for each message."""


def _encode(message: dict[str, Any]) -> bytes:
    return _write(message).encode()


def payload_of(frame: Frame) -> dict[str, Any]:
    """The message of a frame, as kombu's virtual channels know it.

    It was held until it was due. `eta` says so no more, for a worker would hold it once more where
    its clock is behind; `hourwheel_eta` has it.

    Raises:
        InvalidArgument: it was not published by kombu.
    """
    try:
        found = json.loads(frame.body)
        properties = found["properties"]
        properties["delivery_tag"] = str(frame.head["tag"])
        properties.setdefault("delivery_info", {})["redelivered"] = frame.head["attempt"] > 1
        headers = found.get("headers") or {}
        if headers.get("eta") is not None:
            headers["hourwheel_eta"], headers["eta"] = headers["eta"], None
    except (ValueError, TypeError, KeyError, AttributeError):
        # Celery logs and rejects what has no headers of a task: nothing is delivered for ever.
        return _foreign(str(frame.head["tag"]), frame.body.decode(errors="replace"))
    payload: dict[str, Any] = found
    return payload


def _foreign(tag: str, text: str) -> dict[str, Any]:
    """What another program has published to the topic, without a task's headers."""
    return {
        "body": text,
        "content-type": "application/data",
        "content-encoding": "utf-8",
        "headers": {},
        "properties": {"delivery_tag": tag, "delivery_info": {"redelivered": False}},
    }


register()
