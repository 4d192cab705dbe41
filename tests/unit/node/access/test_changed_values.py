"""What the audit log writes of the values in a request: all that there may be, and no secret."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from hourwheel.v1 import access_pb2, admin_pb2, members_pb2
from node.access.audit import AUDITED
from node.access.changed_values import (
    FIELDS_MAX,
    ITEMS_MAX,
    LEFT_OUT,
    MORE,
    VALUE_CHARS_MAX,
    WRITTEN,
    changed_values,
)

HUSH: Final = "hush-hush"
UNWRITTEN: Final = frozenset({"key_prefix", "message_ids", "properties", "secret", "text"})
"""Texts of these fields are not for the log. One that is new belongs here or into `WRITTEN`."""


def requests() -> Iterator[Descriptor]:
    """Of all methods of which each call is noted."""
    for full_name in sorted(AUDITED):
        service, _, method = full_name.rpartition(".")
        found = descriptor_pool.Default().FindServiceByName(service)
        yield found.methods_by_name[method].input_type


def texts_in(message: Descriptor) -> set[str]:
    found: set[str] = set()
    for field in message.fields:
        assert not (field.message_type and field.message_type.GetOptions().map_entry)
        if field.message_type is not None:
            found |= texts_in(field.message_type)
        elif field.type == FieldDescriptor.TYPE_STRING:
            found.add(field.name)
    return found


def fill(message: Message) -> None:
    """Each field of it, and of what is in it."""
    for field in message.DESCRIPTOR.fields:
        is_list = not isinstance(getattr(message, field.name), str | bytes | int | float | Message)
        if field.message_type is not None:
            inner = getattr(message, field.name)
            fill(inner.add() if is_list else inner)
            continue
        value: Any = {FieldDescriptor.TYPE_STRING: HUSH, FieldDescriptor.TYPE_BYTES: HUSH.encode()}
        value = value.get(field.type, 1)
        if is_list:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)


def test_each_text_is_written_or_known_to_be_none_for_the_log() -> None:
    found = set().union(*map(texts_in, requests()))
    assert found == WRITTEN | UNWRITTEN
    assert not WRITTEN & UNWRITTEN


@pytest.mark.parametrize("request_type", [*requests()], ids=lambda one: one.name)
def test_request_of_each_method_can_be_written(request_type: Descriptor) -> None:
    request = GetMessageClass(request_type)()
    fill(request)
    found = changed_values(request)
    assert bool(found) != request_type.name.startswith("List")
    for path, text in found.items():
        if path.rpartition(".")[2] in UNWRITTEN:
            assert text == LEFT_OUT
    json.dumps(found)


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        (
            access_pb2.PutGrantRequest(
                grant=access_pb2.AccessGrant(
                    principal="alice",
                    kind=access_pb2.ACCESS_RESOURCE_KIND_TOPIC,
                    resource="orders-*",
                    operations=[
                        access_pb2.ACCESS_OPERATION_PUBLISH,
                        access_pb2.ACCESS_OPERATION_CANCEL,
                    ],
                ),
                expected_version=0,
            ),
            {
                "grant.principal": "alice",
                "grant.kind": "ACCESS_RESOURCE_KIND_TOPIC",
                "grant.resource": "orders-*",
                "grant.operations": "ACCESS_OPERATION_PUBLISH, ACCESS_OPERATION_CANCEL",
                "expected_version": "0",
            },
        ),
        (
            access_pb2.PutQuotaRequest(
                quota=access_pb2.AccessQuota(principal="*", topics=0, messages_per_s=100)
            ),
            {"quota.principal": "*", "quota.messages_per_s": "100", "quota.topics": "0"},
        ),
        (
            access_pb2.PutUserRequest(user="alice", secret=HUSH),
            {"user": "alice", "secret": LEFT_OUT},
        ),
        (
            admin_pb2.UpdateTopicRequest(name="orders", is_paused=False, retention_ms=1),
            {"name": "orders", "retention_ms": "1", "is_paused": "false"},
        ),
        (
            members_pb2.ChangeMembersRequest(
                add=[members_pb2.NewMember(node_id="d", control_address="h:4")],
                remove_node_ids=["b", "c"],
            ),
            {"add.0.node_id": "d", "add.0.control_address": "h:4", "remove_node_ids": "b, c"},
        ),
    ],
    ids=lambda one: type(one).__name__,
)
def test_values_are_those_that_are_set(request_: Message, found: dict[str, str]) -> None:
    assert changed_values(request_) == found


def test_constant_that_is_not_known_is_its_number() -> None:
    grant = access_pb2.AccessGrant(kind=77)  # type: ignore[arg-type]
    assert changed_values(access_pb2.PutGrantRequest(grant=grant)) == {"grant.kind": "77"}


def test_what_is_written_is_bounded() -> None:
    many = [members_pb2.NewMember(node_id="x" * 100_000) for _ in range(1_000)]
    request = members_pb2.ChangeMembersRequest(add=many, remove_node_ids=["y"] * 1_000)
    found = changed_values(request)
    assert len(found) == FIELDS_MAX + 1
    assert found[MORE] == MORE
    assert found["add.0.node_id"] == "x" * VALUE_CHARS_MAX + MORE
    few = changed_values(members_pb2.ChangeMembersRequest(remove_node_ids=["y"] * 1_000))
    assert few == {"remove_node_ids": ", ".join(["y"] * ITEMS_MAX + [MORE])}
