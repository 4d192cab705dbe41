"""All calls of the API, typed, and whether each may be repeated when its outcome is unknown.

Why not the generated stubs: they carry no types.
"""

from dataclasses import dataclass
from typing import Final, Generic, Protocol, Self, TypeVar

from hourwheel.v1 import (
    access_pb2,
    admin_pb2,
    broker_pb2,
    consumer_pb2,
    groups_pb2,
    lookup_pb2,
    members_pb2,
    pending_pb2,
    recurrence_pb2,
    session_pb2,
    transaction_pb2,
)


class WireMessage(Protocol):
    """What is needed of a protobuf class."""

    def SerializeToString(self) -> bytes:  # noqa: N802
        """The message's bytes."""
        ...

    @classmethod
    def FromString(cls, raw: bytes, /) -> Self:  # noqa: N802
        """The message of these bytes."""
        ...


Request = TypeVar("Request", bound=WireMessage)
Response = TypeVar("Response", bound=WireMessage)


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Response]):
    """One call of the API."""

    path: str
    request: type[Request]
    response: type[Response]
    is_repeatable: bool
    """Carrying it out twice equals carrying it out once."""
    is_waiting: bool = False
    """The node may take its time on purpose: a late answer says nothing about its health."""
    session_field: str = ""
    """Field of `SessionCall` and `SessionAnswer`: it may go over a session; empty: it may not."""


_PRODUCER: Final = "/hourwheel.v1.ProducerService/"
_CONSUMER: Final = "/hourwheel.v1.ConsumerService/"
_ADMIN: Final = "/hourwheel.v1.AdminService/"
_ACCESS: Final = "/hourwheel.v1.AccessService/"
_LOOKUP: Final = "/hourwheel.v1.LookupService/"
_TRANSACTION: Final = "/hourwheel.v1.TransactionService/"
_RECURRENCE: Final = "/hourwheel.v1.RecurrenceService/"

OPEN_SESSION: Final = Method(
    "/hourwheel.v1.SessionService/Session",
    session_pb2.SessionRequest,
    session_pb2.SessionResponse,
    is_repeatable=False,
)
"""A stream that carries calls of other methods."""

PUBLISH: Final = Method(
    _PRODUCER + "Publish",
    broker_pb2.PublishRequest,
    broker_pb2.PublishResponse,
    is_repeatable=False,
)
"""With a `ProducerPosition` of its own it may be repeated, and its caller says so."""
PUBLISH_STREAM: Final = Method(
    _PRODUCER + "PublishStream",
    broker_pb2.PublishStreamRequest,
    broker_pb2.PublishStreamResponse,
    is_repeatable=False,
)
"""Its batches have numbers of their own that make them repeatable (`inflight_batches`)."""
CANCEL: Final = Method(
    _PRODUCER + "Cancel",
    broker_pb2.CancelRequest,
    broker_pb2.CancelResponse,
    is_repeatable=True,
    session_field="cancel",
)

RESCHEDULE: Final = Method(
    _PRODUCER + "Reschedule",
    broker_pb2.RescheduleRequest,
    broker_pb2.RescheduleResponse,
    is_repeatable=True,
    session_field="reschedule",
)
"""The second try moves the same messages to the same time, or gets their outcomes."""

RECEIVE: Final = Method(
    _CONSUMER + "Receive",
    consumer_pb2.ReceiveRequest,
    consumer_pb2.ReceiveResponse,
    is_repeatable=False,
    is_waiting=True,
    session_field="receive",
)
"""Messages leased by an answer that got lost come again when their invisible time is over."""
ACK: Final = Method(
    _CONSUMER + "Ack",
    consumer_pb2.AckRequest,
    consumer_pb2.AckResponse,
    is_repeatable=True,
    session_field="ack",
)
NACK: Final = Method(
    _CONSUMER + "Nack",
    consumer_pb2.NackRequest,
    consumer_pb2.NackResponse,
    is_repeatable=True,
    session_field="nack",
)
"""The first one ends the lease; a second one finds it over."""
CHANGE_INVISIBLE: Final = Method(
    _CONSUMER + "ChangeInvisible",
    consumer_pb2.ChangeInvisibleRequest,
    consumer_pb2.ChangeInvisibleResponse,
    is_repeatable=True,
    session_field="change_invisible",
)
JOIN_BROADCAST: Final = Method(
    _CONSUMER + "JoinBroadcast",
    consumer_pb2.JoinBroadcastRequest,
    consumer_pb2.JoinBroadcastResponse,
    is_repeatable=True,
)
"""Known again by its token."""
LEAVE_BROADCAST: Final = Method(
    _CONSUMER + "LeaveBroadcast",
    consumer_pb2.LeaveBroadcastRequest,
    consumer_pb2.LeaveBroadcastResponse,
    is_repeatable=True,
)

PREPARE: Final = Method(
    _TRANSACTION + "Prepare",
    transaction_pb2.PrepareRequest,
    transaction_pb2.PrepareResponse,
    is_repeatable=True,
)
"""Known again by its token."""
END_TRANSACTION: Final = Method(
    _TRANSACTION + "EndTransaction",
    transaction_pb2.EndTransactionRequest,
    transaction_pb2.EndTransactionResponse,
    is_repeatable=True,
)
POLL_CHECKS: Final = Method(
    _TRANSACTION + "PollChecks",
    transaction_pb2.PollChecksRequest,
    transaction_pb2.PollChecksResponse,
    is_repeatable=True,
    is_waiting=True,
)
"""A check whose answer got lost comes again after its interval."""
LIST_TRANSACTIONS: Final = Method(
    _TRANSACTION + "ListTransactions",
    transaction_pb2.ListTransactionsRequest,
    transaction_pb2.ListTransactionsResponse,
    is_repeatable=True,
)
GET_TRANSACTION: Final = Method(
    _TRANSACTION + "GetTransaction",
    transaction_pb2.GetTransactionRequest,
    transaction_pb2.GetTransactionResponse,
    is_repeatable=True,
)

CREATE_TOPIC: Final = Method(
    _ADMIN + "CreateTopic",
    admin_pb2.CreateTopicRequest,
    admin_pb2.CreateTopicResponse,
    is_repeatable=True,
)
DELETE_TOPIC: Final = Method(
    _ADMIN + "DeleteTopic",
    admin_pb2.DeleteTopicRequest,
    admin_pb2.DeleteTopicResponse,
    is_repeatable=False,
)
"""Not to be repeated: another topic of that name may have been made in between."""
GET_TOPIC: Final = Method(
    _ADMIN + "GetTopic", admin_pb2.GetTopicRequest, admin_pb2.GetTopicResponse, is_repeatable=True
)
LIST_TOPICS: Final = Method(
    _ADMIN + "ListTopics",
    admin_pb2.ListTopicsRequest,
    admin_pb2.ListTopicsResponse,
    is_repeatable=True,
)
PUT_GROUP: Final = Method(
    _ADMIN + "PutGroup", admin_pb2.PutGroupRequest, admin_pb2.PutGroupResponse, is_repeatable=True
)
UPDATE_TOPIC: Final = Method(
    _ADMIN + "UpdateTopic",
    admin_pb2.UpdateTopicRequest,
    admin_pb2.UpdateTopicResponse,
    is_repeatable=False,
)
"""Not to be repeated: somebody else may have changed it in between."""
UPDATE_GROUP: Final = Method(
    _ADMIN + "UpdateGroup",
    admin_pb2.UpdateGroupRequest,
    admin_pb2.UpdateGroupResponse,
    is_repeatable=False,
)
"""As `UPDATE_TOPIC`."""
PUT_SUBSCRIPTION: Final = Method(
    _ADMIN + "PutSubscription",
    admin_pb2.PutSubscriptionRequest,
    admin_pb2.PutSubscriptionResponse,
    is_repeatable=True,
)
LIST_PENDING: Final = Method(
    _ADMIN + "ListPending",
    admin_pb2.ListPendingRequest,
    admin_pb2.ListPendingResponse,
    is_repeatable=True,
)
CANCEL_PENDING: Final = Method(
    _ADMIN + "CancelPending",
    pending_pb2.CancelPendingRequest,
    pending_pb2.CancelPendingResponse,
    is_repeatable=True,
)
"""What the first try cancelled is not pending any more: the second one leaves it out."""
RESCHEDULE_PENDING: Final = Method(
    _ADMIN + "ReschedulePending",
    pending_pb2.ReschedulePendingRequest,
    pending_pb2.ReschedulePendingResponse,
    is_repeatable=True,
)
"""What the first try moved is due at the new time: the second one leaves it alone."""
DELETE_GROUP: Final = Method(
    _ADMIN + "DeleteGroup",
    admin_pb2.DeleteGroupRequest,
    admin_pb2.DeleteGroupResponse,
    is_repeatable=False,
)
"""As `DELETE_TOPIC`."""
GET_GROUP: Final = Method(
    _ADMIN + "GetGroup", admin_pb2.GetGroupRequest, admin_pb2.GetGroupResponse, is_repeatable=True
)
LIST_GROUPS: Final = Method(
    _ADMIN + "ListGroups",
    admin_pb2.ListGroupsRequest,
    admin_pb2.ListGroupsResponse,
    is_repeatable=True,
)
GET_STATUS: Final = Method(
    _ADMIN + "GetStatus",
    admin_pb2.GetStatusRequest,
    admin_pb2.GetStatusResponse,
    is_repeatable=True,
)
TRANSFER_MASTER: Final = Method(
    _ADMIN + "TransferMaster",
    admin_pb2.TransferMasterRequest,
    admin_pb2.TransferMasterResponse,
    is_repeatable=False,
    is_waiting=True,
)
"""A second transfer to "the best node" would be to another one."""
LIST_MEMBERS: Final = Method(
    _ADMIN + "ListMembers",
    members_pb2.ListMembersRequest,
    members_pb2.ListMembersResponse,
    is_repeatable=True,
)
CHANGE_MEMBERS: Final = Method(
    _ADMIN + "ChangeMembers",
    members_pb2.ChangeMembersRequest,
    members_pb2.ChangeMembersResponse,
    is_repeatable=False,
    is_waiting=True,
)
"""Tried again it finds that it was done, and cannot tell that it was by this call."""
LIST_DAMAGED: Final = Method(
    _ADMIN + "ListDamaged",
    admin_pb2.ListDamagedRequest,
    admin_pb2.ListDamagedResponse,
    is_repeatable=True,
)
DISCARD_DAMAGED: Final = Method(
    _ADMIN + "DiscardDamaged",
    admin_pb2.DiscardDamagedRequest,
    admin_pb2.DiscardDamagedResponse,
    is_repeatable=True,
)
"""What the first try gave up is not listed any more: the second one leaves it out."""
SKIP: Final = Method(
    _ADMIN + "Skip", groups_pb2.SkipRequest, groups_pb2.SkipResponse, is_repeatable=False
)
"""Where it says "now" a second try would skip what came meanwhile, too."""
RESET_GROUP: Final = Method(
    _ADMIN + "ResetGroup",
    groups_pb2.ResetGroupRequest,
    groups_pb2.ResetGroupResponse,
    is_repeatable=False,
)
"""A second try would deliver again what was finished since the first one."""
LIST_DEAD_LETTERS: Final = Method(
    _ADMIN + "ListDeadLetters",
    groups_pb2.ListDeadLettersRequest,
    groups_pb2.ListDeadLettersResponse,
    is_repeatable=True,
)
REDRIVE_DEAD_LETTERS: Final = Method(
    _ADMIN + "RedriveDeadLetters",
    groups_pb2.RedriveDeadLettersRequest,
    groups_pb2.RedriveDeadLettersResponse,
    is_repeatable=True,
)
"""What the first try gave back is no dead letter any more: the second one leaves it out."""
DESCRIBE_WHEEL: Final = Method(
    _ADMIN + "DescribeWheel",
    admin_pb2.DescribeWheelRequest,
    admin_pb2.DescribeWheelResponse,
    is_repeatable=True,
)
DESCRIBE_MESSAGE: Final = Method(
    _ADMIN + "DescribeMessage",
    admin_pb2.DescribeMessageRequest,
    admin_pb2.DescribeMessageResponse,
    is_repeatable=True,
)
LIST_BY_KEY: Final = Method(
    _LOOKUP + "ListByKey",
    lookup_pb2.ListByKeyRequest,
    lookup_pb2.ListByKeyResponse,
    is_repeatable=True,
)
GET_HISTORY: Final = Method(
    _LOOKUP + "GetHistory",
    lookup_pb2.GetHistoryRequest,
    lookup_pb2.GetHistoryResponse,
    is_repeatable=True,
)

PUT_USER: Final = Method(
    _ACCESS + "PutUser",
    access_pb2.PutUserRequest,
    access_pb2.PutUserResponse,
    is_repeatable=False,
)
"""Not to be repeated: somebody else may have changed the user in between."""
DELETE_USER: Final = Method(
    _ACCESS + "DeleteUser",
    access_pb2.DeleteUserRequest,
    access_pb2.DeleteUserResponse,
    is_repeatable=False,
)
"""As `PUT_USER`; also the others that change something."""
LIST_USERS: Final = Method(
    _ACCESS + "ListUsers",
    access_pb2.ListUsersRequest,
    access_pb2.ListUsersResponse,
    is_repeatable=True,
)
PUT_GRANT: Final = Method(
    _ACCESS + "PutGrant",
    access_pb2.PutGrantRequest,
    access_pb2.PutGrantResponse,
    is_repeatable=False,
)
DELETE_GRANT: Final = Method(
    _ACCESS + "DeleteGrant",
    access_pb2.DeleteGrantRequest,
    access_pb2.DeleteGrantResponse,
    is_repeatable=False,
)
LIST_GRANTS: Final = Method(
    _ACCESS + "ListGrants",
    access_pb2.ListGrantsRequest,
    access_pb2.ListGrantsResponse,
    is_repeatable=True,
)
PUT_QUOTA: Final = Method(
    _ACCESS + "PutQuota",
    access_pb2.PutQuotaRequest,
    access_pb2.PutQuotaResponse,
    is_repeatable=False,
)
DELETE_QUOTA: Final = Method(
    _ACCESS + "DeleteQuota",
    access_pb2.DeleteQuotaRequest,
    access_pb2.DeleteQuotaResponse,
    is_repeatable=False,
)
LIST_QUOTAS: Final = Method(
    _ACCESS + "ListQuotas",
    access_pb2.ListQuotasRequest,
    access_pb2.ListQuotasResponse,
    is_repeatable=True,
)
PUT_RECURRENCE: Final = Method(
    _RECURRENCE + "PutRecurrence",
    recurrence_pb2.PutRecurrenceRequest,
    recurrence_pb2.PutRecurrenceResponse,
    is_repeatable=False,
)
GET_RECURRENCE: Final = Method(
    _RECURRENCE + "GetRecurrence",
    recurrence_pb2.GetRecurrenceRequest,
    recurrence_pb2.GetRecurrenceResponse,
    is_repeatable=True,
)
LIST_RECURRENCES: Final = Method(
    _RECURRENCE + "ListRecurrences",
    recurrence_pb2.ListRecurrencesRequest,
    recurrence_pb2.ListRecurrencesResponse,
    is_repeatable=True,
)
PAUSE_RECURRENCE: Final = Method(
    _RECURRENCE + "PauseRecurrence",
    recurrence_pb2.PauseRecurrenceRequest,
    recurrence_pb2.PauseRecurrenceResponse,
    is_repeatable=True,
)
RESUME_RECURRENCE: Final = Method(
    _RECURRENCE + "ResumeRecurrence",
    recurrence_pb2.ResumeRecurrenceRequest,
    recurrence_pb2.ResumeRecurrenceResponse,
    is_repeatable=True,
)
DELETE_RECURRENCE: Final = Method(
    _RECURRENCE + "DeleteRecurrence",
    recurrence_pb2.DeleteRecurrenceRequest,
    recurrence_pb2.DeleteRecurrenceResponse,
    is_repeatable=False,
)
LIST_NEXT_TIMES: Final = Method(
    _RECURRENCE + "ListNextTimes",
    recurrence_pb2.ListNextTimesRequest,
    recurrence_pb2.ListNextTimesResponse,
    is_repeatable=True,
)
