"""What each call needs: one table, from the method to an operation and the resources it is done on.

A method that is not in the table is never served: a node with one does not start. Where a call
needs a permission on several things, it needs it on each of them.

The cluster's own topics belong to their group: who may receive for a group may receive its dead
letters, and who administers it may delete them.

A message's id names no topic. A caller with the permission on all topics (`ALL_TOPICS`) may go on;
for others the topics of the messages are looked up (`Rule.ids`), and each is asked for.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hourwheel import limits
from hourwheel.formats import message_id
from hourwheel.formats.member_group import MEMBER_PREFIX, is_member_group
from hourwheel.types import DISPATCH_TOPIC
from node.contracts.access import CLUSTER, WILDCARD, Operation, Resource, ResourceKind
from node.contracts.message_topics import ids_of
from storage.views.catalog_names import DEAD_LETTER_PREFIX, RETRY_PREFIX

ALL_TOPICS: Final = Resource(ResourceKind.TOPIC, WILDCARD)
"""Only a grant on `*` has it."""

_ESCAPED_BAR: Final = "%7C"
_NO_IDS: Final = np.zeros(0, message_id.ID_DTYPE)

Resources: TypeAlias = Callable[[Any], tuple[Resource, ...]]


class Rule(NamedTuple):
    """What one method needs."""

    operation: Operation | None
    """None: that its caller is known, and no more."""
    resources: Resources
    """Of a request."""
    ids: "Callable[[Any], NDArray[np.void]] | None" = None
    """The ids by which a request names messages, array[n] of ID_DTYPE; none: it does not. The
    permission on their topics is enough instead."""


def topic_resource(name: str) -> Resource:
    """What a topic belongs to: itself, or the group whose retries or dead letters it has.

    That by which dispatching is paused belongs to the cluster.
    """
    if name == DISPATCH_TOPIC:
        return CLUSTER
    if name.startswith(DEAD_LETTER_PREFIX):
        return group_resource(name.removeprefix(DEAD_LETTER_PREFIX))
    if name.startswith(RETRY_PREFIX):
        group = name.removeprefix(RETRY_PREFIX).partition("|")[0]
        return group_resource(group.replace(_ESCAPED_BAR, "|"))
    return Resource(ResourceKind.TOPIC, name)


def group_resource(name: str) -> Resource:
    """A group; of a member the broadcast."""
    if is_member_group(name):
        name = name.removeprefix(MEMBER_PREFIX).rpartition("|")[0]
    return Resource(ResourceKind.GROUP, name)


def _nothing(_request: Any) -> tuple[Resource, ...]:
    return ()


def _cluster(_request: Any) -> tuple[Resource, ...]:
    return (CLUSTER,)


def _all_topics(_request: Any) -> tuple[Resource, ...]:
    return (ALL_TOPICS,)


def _topic(request: Any) -> tuple[Resource, ...]:
    return (topic_resource(request.topic),)


def _published(request: Any) -> tuple[Resource, ...]:
    """All topics of a batch; one with more than so many is refused as it is read."""
    names = list(getattr(request, "topics", ()))[: limits.BATCH_TOPIC_COUNT_MAX]
    if request.topic or not names:
        names.append(request.topic)
    return tuple(map(topic_resource, names))


def _cancelled(request: Any) -> tuple[Resource, ...]:
    """Of keys, their topic; an id names none, and so needs all, or see `_ids`."""
    return _topic(request) if request.keys or request.topic else _all_topics(request)


def _prepared(request: Any) -> tuple[Resource, ...]:
    """All topics of a transaction; one with more is refused as it is read."""
    parts = request.parts[: limits.TRANSACTION_TOPICS_MAX]
    return tuple(topic_resource(part.topic) for part in parts) or _all_topics(request)


def _of_topics_or_all(request: Any) -> tuple[Resource, ...]:
    """A transaction has no topic but these; where none is named it may have any."""
    names = request.topics[: limits.BATCH_TOPIC_COUNT_MAX]
    return tuple(map(topic_resource, names)) or _all_topics(request)


def _of_topic_or_all(request: Any) -> tuple[Resource, ...]:
    """As `_cancelled`: the history of a message of a topic, or of any."""
    return _topic(request) if request.topic else _all_topics(request)


def _ids(request: Any) -> NDArray[np.void]:
    """Of a cancel or reschedule."""
    return _NO_IDS if request.keys or request.topic else ids_of(request)


def _id_without_topic(request: Any) -> NDArray[np.void]:
    return _NO_IDS if request.topic else _id(request)


def _id(request: Any) -> NDArray[np.void]:
    """Of a description or history."""
    name = request.message_id
    return message_id.parse_many([name]) if name else _NO_IDS


def _named_topic(request: Any) -> tuple[Resource, ...]:
    return (topic_resource(request.name),)


def _group(request: Any) -> tuple[Resource, ...]:
    return (group_resource(request.group),)


def _named_group(request: Any) -> tuple[Resource, ...]:
    return (group_resource(request.name),)


def _topic_and_group(request: Any) -> tuple[Resource, ...]:
    return (topic_resource(request.topic), group_resource(request.group))


def _damaged(request: Any) -> tuple[Resource, ...]:
    """Of whichever group and topic are named; of all of them where none is."""
    found: tuple[Resource, ...] = ()
    if request.group:
        found += (group_resource(request.group),)
    if request.topic:
        found += (topic_resource(request.topic),)
    return found or (CLUSTER,)


_KNOWN: Final = Rule(None, _nothing)
LOOK_AT_TOPIC: Final = Rule(Operation.LOOK, _topic)
"""What a call needs beside its own permission where it tells whether a topic is there."""
REPLACE: Final = Rule(Operation.CANCEL, _published)
"""What publishing needs beside its own permission where pending messages may be replaced."""
_PRODUCER: Final = "hourwheel.v1.ProducerService."
_CONSUMER: Final = "hourwheel.v1.ConsumerService."
_ADMIN: Final = "hourwheel.v1.AdminService."
_ACCESS: Final = "hourwheel.v1.AccessService."
_LOOKUP: Final = "hourwheel.v1.LookupService."
_TRANSACTION: Final = "hourwheel.v1.TransactionService."
_RECURRENCE: Final = "hourwheel.v1.RecurrenceService."

RULES: Final[dict[str, Rule]] = {
    _PRODUCER + "Publish": Rule(Operation.PUBLISH, _topic),
    _PRODUCER + "PublishStream": Rule(Operation.PUBLISH, _published),
    _PRODUCER + "Cancel": Rule(Operation.CANCEL, _cancelled, _ids),
    _PRODUCER + "Reschedule": Rule(Operation.CANCEL, _cancelled, _ids),
    _CONSUMER + "Receive": Rule(Operation.RECEIVE, _topic_and_group),
    _CONSUMER + "Ack": Rule(Operation.RECEIVE, _group),
    _CONSUMER + "Nack": Rule(Operation.RECEIVE, _group),
    _CONSUMER + "ChangeInvisible": Rule(Operation.RECEIVE, _group),
    _CONSUMER + "JoinBroadcast": Rule(Operation.RECEIVE, _topic_and_group),
    _CONSUMER + "LeaveBroadcast": Rule(Operation.RECEIVE, _group),
    _ADMIN + "CreateTopic": Rule(Operation.ADMINISTER, _named_topic),
    _ADMIN + "UpdateTopic": Rule(Operation.ADMINISTER, _named_topic),
    _ADMIN + "DeleteTopic": Rule(Operation.ADMINISTER, _named_topic),
    _ADMIN + "GetTopic": Rule(Operation.LOOK, _named_topic),
    _ADMIN + "ListTopics": _KNOWN,  # shows what its caller may look at
    _ADMIN + "PutGroup": Rule(Operation.ADMINISTER, _named_group),
    _ADMIN + "UpdateGroup": Rule(Operation.ADMINISTER, _named_group),
    _ADMIN + "DeleteGroup": Rule(Operation.ADMINISTER, _named_group),
    _ADMIN + "GetGroup": Rule(Operation.LOOK, _named_group),
    _ADMIN + "ListGroups": _KNOWN,  # likewise
    _ADMIN + "PutSubscription": Rule(Operation.RECEIVE, _topic_and_group),
    _ADMIN + "GetStatus": _KNOWN,  # clients find the master by it
    _ADMIN + "TransferMaster": Rule(Operation.ADMINISTER, _cluster),
    _ADMIN + "ListMembers": Rule(Operation.LOOK, _cluster),
    _ADMIN + "ChangeMembers": Rule(Operation.ADMINISTER, _cluster),
    _ADMIN + "ListPending": Rule(Operation.LOOK, _topic),
    _ADMIN + "CancelPending": Rule(Operation.CANCEL, _topic),
    _ADMIN + "ReschedulePending": Rule(Operation.CANCEL, _topic),
    _ADMIN + "ListDamaged": Rule(Operation.LOOK, _damaged),
    _ADMIN + "DiscardDamaged": Rule(Operation.ADMINISTER, _group),
    # These two ask for `LOOK_AT_TOPIC`, too; what others get of the topic stays.
    _ADMIN + "Skip": Rule(Operation.ADMINISTER, _group),
    _ADMIN + "ResetGroup": Rule(Operation.ADMINISTER, _group),
    _ADMIN + "ListDeadLetters": Rule(Operation.RECEIVE, _group),  # as one may receive them
    _ADMIN + "RedriveDeadLetters": Rule(Operation.ADMINISTER, _group),
    _ADMIN + "DescribeMessage": Rule(Operation.LOOK, _all_topics, _id),
    _ADMIN + "DescribeWheel": Rule(Operation.LOOK, _cluster),
    _LOOKUP + "ListByKey": Rule(Operation.LOOK, _topic),
    _LOOKUP + "GetHistory": Rule(Operation.LOOK, _of_topic_or_all, _id_without_topic),
    _TRANSACTION + "Prepare": Rule(Operation.PUBLISH, _prepared),
    _TRANSACTION + "EndTransaction": Rule(Operation.PUBLISH, _of_topics_or_all),
    _TRANSACTION + "PollChecks": Rule(Operation.PUBLISH, _of_topics_or_all),
    _TRANSACTION + "ListTransactions": Rule(Operation.LOOK, _all_topics),
    _TRANSACTION + "GetTransaction": Rule(Operation.LOOK, _all_topics),
    _RECURRENCE + "PutRecurrence": Rule(Operation.PUBLISH, _topic),
    _RECURRENCE + "PauseRecurrence": Rule(Operation.PUBLISH, _topic),
    _RECURRENCE + "ResumeRecurrence": Rule(Operation.PUBLISH, _topic),
    _RECURRENCE + "DeleteRecurrence": Rule(Operation.PUBLISH, _topic),
    _RECURRENCE + "GetRecurrence": Rule(Operation.LOOK, _topic),
    _RECURRENCE + "ListRecurrences": Rule(Operation.LOOK, _of_topic_or_all),
    _RECURRENCE + "ListNextTimes": Rule(Operation.LOOK, _topic),
    _ACCESS + "PutUser": Rule(Operation.ADMINISTER, _cluster),
    _ACCESS + "DeleteUser": Rule(Operation.ADMINISTER, _cluster),
    _ACCESS + "ListUsers": Rule(Operation.ADMINISTER, _cluster),
    _ACCESS + "PutGrant": Rule(Operation.ADMINISTER, _cluster),
    _ACCESS + "DeleteGrant": Rule(Operation.ADMINISTER, _cluster),
    _ACCESS + "ListGrants": Rule(Operation.ADMINISTER, _cluster),
    _ACCESS + "PutQuota": Rule(Operation.ADMINISTER, _cluster),
    _ACCESS + "DeleteQuota": Rule(Operation.ADMINISTER, _cluster),
    _ACCESS + "ListQuotas": Rule(Operation.ADMINISTER, _cluster),
    "hourwheel.v1.SessionService.Session": _KNOWN,  # its calls are checked one by one
}
"""Full name of each method of the API -> what it needs.

Health and reflection are not here: anybody may ask whether a node is well, and for the published
API.
"""
