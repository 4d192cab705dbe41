"""What callers send and get, as types: pydantic checks by them, and makes the schema of them.

Bodies of messages are text or bytes: `json` (any JSON), `text` (UTF-8) or `base64`. Lengths of time
are "90s", "1h30m" or milliseconds; instants are "2027-03-01T09:00:00Z" or epoch milliseconds.
"""

import base64
import binascii
import json
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from hourwheel import errors, limits
from hourwheel.client.expiry import expires_of
from hourwheel.due_time import When, parse_duration_ms, parse_when
from hourwheel.instants import check_instant
from hourwheel.priorities import NO_PRIORITY, PRIORITY_MAX
from hourwheel.types import QUEUE_COUNT_MAX

PUBLISH_COUNT_MAX: Final = 1_000
IDS_MAX: Final = 1_000
"""Ids, keys and receipts of one call."""
RECEIVE_COUNT_MAX: Final = 1_000
KEY_PAGE_MAX: Final = 1_000
_TEXT_CHARS_MAX: Final = 64
_MS_MAX: Final = 1 << 53
_BODY_KINDS: Final = ("json", "text", "base64")

Length = Annotated[
    Annotated[int, Field(ge=0, lt=_MS_MAX)] | Annotated[str, Field(max_length=_TEXT_CHARS_MAX)],
    Field(description="A length of time: '90s', '1h30m', '3d', or milliseconds."),
]
Instant = Annotated[
    Annotated[int, Field(ge=0, lt=_MS_MAX)] | Annotated[str, Field(max_length=_TEXT_CHARS_MAX)],
    Field(description="An instant: '2027-03-01T09:00:00Z', or milliseconds since the Unix epoch."),
]
Name = Annotated[str, Field(min_length=1, max_length=limits.NAME_BYTES_MAX)]
MessageIdText = Annotated[str, Field(min_length=48, max_length=48)]
ReceiptText = Annotated[str, Field(min_length=1, max_length=256)]
KeyText = Annotated[str, Field(min_length=1, max_length=limits.KEY_BYTES_MAX)]


def _few(given: Any, count_max: int) -> Any:
    """Raises ValueError: an object with more members."""
    if isinstance(given, dict) and len(given) > count_max:
        raise ValueError(f"it has more than {count_max} members")
    return given


class Sent(BaseModel):
    """What a caller sends: nothing unknown, and no number where a text belongs."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def check_few(cls, given: Any) -> Any:
        """Each field that is unknown is an error of its own, up to so many."""
        return _few(given, 2 * len(cls.model_fields))


class Given(BaseModel):
    """What a caller gets. Later versions may add to it."""


def length_ms(length: int | str) -> int:
    """In milliseconds. Raises InvalidDueTime."""
    return length if isinstance(length, int) else parse_duration_ms(length)


def when_of(due: int | str | None, delay: int | str | None) -> When:
    """The two fields as one; neither: at once.

    Raises:
        InvalidDueTime: both are given, or one is no such thing.
    """
    if due is not None and delay is not None:
        raise errors.InvalidDueTime("give either due or delay")
    if delay is not None:
        return When(delay_ms=length_ms(delay))
    if due is None:
        return When()
    if isinstance(due, int):
        check_instant(due)
        return When(due_ms=due)
    found = parse_when(due)
    if found.due_ms is None:
        raise errors.InvalidDueTime(f"{due!r} is no instant: a length of time goes into `delay`")
    check_instant(found.due_ms)
    return found


class Timed(Sent):
    """Something with a due time."""

    due: Instant | None = None
    delay: Length | None = None

    @property
    def when(self) -> When:
        """Raises as `when_of`."""
        return when_of(self.due, self.delay)


class NewMessage(Timed):
    """A message to publish. Exactly one of `json`, `text` and `base64` is its body."""

    json_value: Any = Field(default=None, alias="json", description="The body, as any JSON value.")
    text: str = Field(default="", description="The body, as text (UTF-8).")
    base64: str = Field(default="", description="The body, any bytes.")
    tags: list[str] = Field(default=[], max_length=limits.MESSAGE_TAG_COUNT_MAX)
    keys: list[str] = Field(default=[], max_length=limits.MESSAGE_KEY_COUNT_MAX)
    properties: Annotated[
        dict[str, str],
        BeforeValidator(lambda given: _few(given, limits.MESSAGE_PROPERTY_COUNT_MAX)),
    ] = Field(default={}, max_length=limits.MESSAGE_PROPERTY_COUNT_MAX)
    ordering_key: str = ""
    priority: int = Field(
        default=NO_PRIORITY,
        ge=NO_PRIORITY,
        le=PRIORITY_MAX,
        description="Of what a group may be given, the highest comes first.",
    )
    expires: Instant | None = Field(
        default=None, description="From this instant on no group gets it."
    )
    expire_after: Length | None = Field(
        default=None, description="As `expires`: so long after the due time."
    )
    dedup_key: str = ""
    if_pending: Literal["reject", "keep", "replace"] | None = None
    content_type: str = ""
    client_message_id: str = ""

    @model_validator(mode="after")
    def check_body(self) -> Self:
        """Exactly one of three, where JSON's null is a value."""
        given = {"json_value", "text", "base64"} & self.model_fields_set
        if len(given) != 1:
            raise ValueError(f"exactly one of {', '.join(_BODY_KINDS)} is needed")
        return self

    @property
    def body(self) -> bytes:
        """The bytes. Raises InvalidArgument: no base64, no Unicode, or too large a number."""
        try:
            if "text" in self.model_fields_set:
                return self.text.encode()
            if "base64" in self.model_fields_set:
                return base64.b64decode(self.base64, validate=True)
            # A number such as 1e400 is infinite by now, which JSON has no word for.
            return json.dumps(
                self.json_value, ensure_ascii=False, allow_nan=False, separators=(",", ":")
            ).encode()
        except (binascii.Error, ValueError) as error:
            raise errors.InvalidArgument(
                f"the body cannot be read: {error}", field="body"
            ) from None

    @property
    def expires_ms(self) -> int:
        """As metadata has it. Raises InvalidDueTime: no such thing, or not later than it is due."""
        when, instant = self.when, when_of(self.expires, None)
        after_ms = None if self.expire_after is None else length_ms(self.expire_after)
        return expires_of(when.due_ms, when.delay_ms, instant.due_ms, after_ms)

    @property
    def type_of_content(self) -> str:
        """As given; of a `json` body that says nothing, application/json."""
        is_json = "json_value" in self.model_fields_set
        return self.content_type or ("application/json" if is_json else "")


def _one_or_list(value: object) -> str:
    return "list" if isinstance(value, list) else "one"


NewMessages = Annotated[
    Annotated[NewMessage, Tag("one")]
    | Annotated[
        Annotated[list[NewMessage], Field(min_length=1, max_length=PUBLISH_COUNT_MAX)], Tag("list")
    ],
    Discriminator(_one_or_list),
]


class PublishedMessage(Given):
    """What became of one message."""

    id: str = Field(description="Empty: it was not stored, as a pending one has its dedup key.")
    due_ms: int
    outcome: Literal["published", "rejected", "kept", "replaced"] = "published"
    pending_id: str = Field(default="", description="Of the message that had the dedup key before.")


class Published(Given):
    """In the order of the messages."""

    messages: list[PublishedMessage]


class Filter(Sent):
    """Which messages the group wants: one of the two."""

    tags: str | None = Field(default=None, max_length=limits.FILTER_BYTES_MAX)
    sql: str | None = Field(default=None, max_length=limits.FILTER_BYTES_MAX)

    @model_validator(mode="after")
    def check_one(self) -> Self:
        """One of the two."""
        if (self.tags is None) == (self.sql is None):
            raise ValueError("either tags or sql is needed")
        return self


class Receive(Sent):
    """Asks for messages of one topic."""

    topic: Name
    max_messages: int = Field(default=32, ge=1, le=RECEIVE_COUNT_MAX)
    wait_ms: int = Field(default=0, ge=0, le=limits.RECEIVE_WAIT_MS_MAX)
    invisible: Length | None = Field(default=None, description="None: as the group is set up.")
    filter: Filter | None = None


class ReceivedMessage(Given):
    """A leased message. Its body is in `text` where it is UTF-8, else in `base64`."""

    id: str
    receipt: str = Field(description="For ack, nack and extend.")
    topic: str
    attempt: int
    due_ms: int
    store_ms: int
    text: str | None = None
    base64: str | None = None
    tags: list[str] = []
    keys: list[str] = []
    properties: dict[str, str] = {}
    ordering_key: str = ""
    priority: int = NO_PRIORITY
    content_type: str = ""
    client_message_id: str = ""


class Received(Given):
    """Messages of one answer; none, if none came in time."""

    messages: list[ReceivedMessage]
    invisible_until_ms: int = Field(
        default=0, description="When the lease ends, by the nodes' clock."
    )


class Receipts(Sent):
    """Messages to finish."""

    receipts: list[ReceiptText] = Field(min_length=1, max_length=IDS_MAX)


class Nack(Receipts):
    """Messages that are to come again."""

    delay: Length | None = Field(default=None, description="None: after the group's retry delay.")
    dead_letter: bool = Field(
        default=False,
        description="No attempt is of any use: they are dead letters at once. Not with `delay`.",
    )
    reason: str = Field(
        default="",
        max_length=limits.NACK_REASON_BYTES_MAX,
        description="Why, for those who look at dead letters. Only with `dead_letter`.",
    )
    not_begun: bool = Field(
        default=False,
        description="No work on them has begun: they come again at once, and no attempt counts. "
        "Not with `delay` nor `dead_letter`.",
    )


class Extend(Receipts):
    """Leases that are to last, from now on, for `invisible`."""

    invisible: Length


class Reset(Sent):
    """Where a group begins anew: `to`, or a position of each queue."""

    topic: Name
    to: Instant | None = Field(
        default=None,
        description="'first': with what is still there; 'now'; or an instant, as "
        "'2027-03-01T09:00:00Z' or milliseconds since the Unix epoch: with what was released then "
        "or later.",
    )
    positions: list[Annotated[int, Field(ge=0, lt=_MS_MAX)]] = Field(
        default=[],
        max_length=QUEUE_COUNT_MAX,
        description="Of each queue of the topic, in order, the first one that the group gets.",
    )
    count_only: bool = Field(
        default=False, description="Tell what it would come to, and change nothing."
    )

    @model_validator(mode="after")
    def check_one(self) -> Self:
        """One of the two."""
        if (self.to is None) == (not self.positions):
            raise ValueError("either to or positions is needed")
        return self

    @property
    def start(self) -> str | int | None:
        """As the client takes it. Raises InvalidDueTime."""
        return self.to if self.to in {None, "first", "now"} else when_of(self.to, None).due_ms


class WasReset(Given):
    """What a reset comes to."""

    again_count: int = Field(description="Messages that the group gets again.")
    skipped_count: int = Field(description="Those that it had to do, and does not get.")
    retries_dropped_count: int = Field(
        description="Released retries that it had to do. Those not yet due are dropped uncounted."
    )
    unresolved_count: int = Field(description="Messages that it has to do from now on.")
    positions: list[int] = Field(description="Of each queue, where it begins.")


class Finished(Given):
    """All of them."""

    count: int


class Extended(Finished):
    """When they end now."""

    invisible_until_ms: int


class Ids(Sent):
    """Messages, by id."""

    ids: list[MessageIdText] = Field(min_length=1, max_length=IDS_MAX)


class Keys(Sent):
    """Messages of a topic, by key."""

    keys: list[KeyText] = Field(min_length=1, max_length=IDS_MAX)


class MoveIds(Timed, Ids):
    """Messages, and one new due time for all of them."""


class MoveKeys(Timed, Keys):
    """Messages of a topic, and one new due time for all of them."""


class Outcome(Given):
    """What became of the message with an id, or of those with a key."""

    of: str
    outcome: str = Field(
        description="A value of CancelOutcome or RescheduleOutcome, in lower case."
    )
    count: int | None = Field(
        default=None, description="How many messages of a key this call changed."
    )
    due_ms: int | None = None


class Outcomes(Given):
    """In the order of the ids or keys."""

    outcomes: list[Outcome]


class Description(Given):
    """Where a message is in its life."""

    id: str
    state: str = Field(description="A value of MessageState, in lower case.")
    due_ms: int
    dead_letters: list[str] = Field(default=[], description="Groups that gave it up.")


class Described(Given):
    """Messages that have a key, those that were published last first."""

    messages: list[Description]
    is_complete: bool = Field(description="False: there are more than were asked for.")


class Health(Given):
    """How the gateway is."""

    status: Literal["ok", "stopping", "no node in reach"]
