"""What each method needs: none is forgotten, and each takes its names from its own fields."""

from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass

from hourwheel.limits import BATCH_TOPIC_COUNT_MAX
from hourwheel.v1 import (
    access_pb2,
    admin_pb2,
    broker_pb2,
    consumer_pb2,
    lookup_pb2,
    recurrence_pb2,
    session_pb2,
    transaction_pb2,
)
from hourwheel.v1.broker_pb2 import PublishStreamRequest
from node.access.permissions import RULES, Rule, group_resource, topic_resource
from node.contracts.access import CLUSTER, Operation, Resource, ResourceKind

FILES = (
    *(access_pb2, admin_pb2, broker_pb2, consumer_pb2, lookup_pb2, session_pb2),
    *(recurrence_pb2, transaction_pb2),
)
METHODS = {
    method.full_name: method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


def test_each_method_of_the_api_has_a_rule_and_no_other_has() -> None:
    assert RULES.keys() == METHODS.keys()


@pytest.mark.parametrize("name", METHODS)
def test_rule_reads_the_request_of_its_method(name: str) -> None:
    rule: Rule = RULES[name]
    request: Any = GetMessageClass(METHODS[name].input_type)()
    for field in ("topic", "group", "name"):
        if field in request.DESCRIPTOR.fields_by_name:
            setattr(request, field, f"some-{field}")
    resources = rule.resources(request)
    assert bool(resources) is (rule.operation is not None)
    named = {one.name for one in resources}
    for field in ("topic", "group", "name"):
        has = field in request.DESCRIPTOR.fields_by_name
        by_group = ("DiscardDamaged", "ListDeadLetters", "RedriveDeadLetters", "ResetGroup", "Skip")
        is_by_group_alone = name.endswith(by_group) and field == "topic"
        is_of_topic = ".RecurrenceService." in name and field == "name"  # it has a name in it
        is_named = has and not is_by_group_alone and not is_of_topic
        assert (f"some-{field}" in named) is is_named


def test_transactions_need_the_permission_on_all_of_their_topics() -> None:
    service = "hourwheel.v1.TransactionService."
    every = (Resource(ResourceKind.TOPIC, "*"),)
    named = topic_resource("a"), topic_resource("b")
    parts = [transaction_pb2.PreparedMessages(topic=name) for name in "ab"]
    prepare = RULES[service + "Prepare"].resources
    assert prepare(transaction_pb2.PrepareRequest(parts=parts)) == named
    assert prepare(transaction_pb2.PrepareRequest()) == every
    end = RULES[service + "EndTransaction"].resources
    assert end(transaction_pb2.EndTransactionRequest(topics=["a", "b"])) == named
    assert end(transaction_pb2.EndTransactionRequest()) == every
    poll = RULES[service + "PollChecks"].resources
    assert poll(transaction_pb2.PollChecksRequest(topics=["a", "b"])) == named


def test_history_needs_the_permission_on_its_topic_or_on_all() -> None:
    resources = RULES["hourwheel.v1.LookupService.GetHistory"].resources
    assert resources(lookup_pb2.GetHistoryRequest(topic="a")) == (topic_resource("a"),)
    assert resources(lookup_pb2.GetHistoryRequest()) == (Resource(ResourceKind.TOPIC, "*"),)


def test_batch_of_many_topics_needs_the_permission_on_each() -> None:
    rule = RULES["hourwheel.v1.ProducerService.PublishStream"]
    request = broker_pb2.PublishStreamRequest(topics=["a", "%DLQ%b"])
    assert rule.resources(request) == (topic_resource("a"), group_resource("b"))
    request.topic = "c"  # no batch that is taken
    assert topic_resource("c") in rule.resources(request)


@pytest.mark.parametrize(
    ("topic", "resource"),
    [
        ("orders", Resource(ResourceKind.TOPIC, "orders")),
        ("%DLQ%billing", group_resource("billing")),
        ("%RETRY%billing|orders", group_resource("billing")),
        ("%RETRY%a%7Cb|orders", group_resource("a|b")),
        ("%DISPATCH%", CLUSTER),
        ("%other", Resource(ResourceKind.TOPIC, "%other")),
    ],
)
def test_topics_of_the_cluster_belong_to_their_group(topic: str, resource: Resource) -> None:
    assert topic_resource(topic) == resource


def test_batch_needs_the_permission_on_each_of_its_topics() -> None:
    resources = RULES["hourwheel.v1.ProducerService.PublishStream"].resources
    several = PublishStreamRequest(topics=["orders", "%DLQ%billing"], counts=[1, 2])
    assert resources(several) == (Resource(ResourceKind.TOPIC, "orders"), group_resource("billing"))
    several.topic = "bills"  # makes no sense, and hides nothing
    assert Resource(ResourceKind.TOPIC, "bills") in resources(several)
    assert resources(PublishStreamRequest()) == (Resource(ResourceKind.TOPIC, ""),)
    many = PublishStreamRequest(topics=["t"] * (BATCH_TOPIC_COUNT_MAX + 5))
    assert len(resources(many)) == BATCH_TOPIC_COUNT_MAX


def test_what_changes_something_is_no_looking() -> None:
    looking = {name.rpartition(".")[2] for name, rule in RULES.items() if rule.operation in LOOKS}
    assert all(name.startswith(("Get", "List", "Describe", "Session")) for name in looking)


LOOKS = (Operation.LOOK, None)
