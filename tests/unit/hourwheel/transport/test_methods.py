import pytest
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor

from hourwheel.transport import methods
from hourwheel.transport.methods import Method
from hourwheel.v1 import admin_pb2, broker_pb2, consumer_pb2, session_pb2

FILES: tuple[FileDescriptor, ...] = (
    broker_pb2.DESCRIPTOR,
    consumer_pb2.DESCRIPTOR,
    admin_pb2.DESCRIPTOR,
    session_pb2.DESCRIPTOR,
)
TABLE = {each.path: each for each in vars(methods).values() if isinstance(each, Method)}


def calls() -> list[tuple[str, MethodDescriptor]]:
    return [
        (f"/{service.full_name}/{method.name}", method)
        for file in FILES
        for service in file.services_by_name.values()
        for method in service.methods
    ]


@pytest.mark.parametrize(("path", "call"), calls(), ids=[path for path, _ in calls()])
def test_methods_when_compared_with_the_api(path: str, call: MethodDescriptor) -> None:
    method = TABLE[path]
    assert method.request.DESCRIPTOR is call.input_type
    assert method.response.DESCRIPTOR is call.output_type


def test_methods_when_repeating_would_do_harm() -> None:
    risky = {path.split("/")[2] for path, method in TABLE.items() if not method.is_repeatable}
    assert risky == {
        *("Publish",),
        *("PublishStream", "Receive", "DeleteTopic", "DeleteGroup", "TransferMaster", "Session"),
        *("UpdateTopic", "UpdateGroup", "Skip", "ResetGroup"),
        *("PutUser", "DeleteUser", "PutGrant", "DeleteGrant", "ChangeMembers"),
        *("PutQuota", "DeleteQuota", "PutRecurrence", "DeleteRecurrence"),
    }


def test_methods_when_they_go_over_a_session() -> None:
    by_field = {each.session_field: each for each in TABLE.values() if each.session_field}
    of_calls = session_pb2.SessionCall.DESCRIPTOR.fields_by_name
    of_answers = session_pb2.SessionAnswer.DESCRIPTOR.fields_by_name
    assert by_field
    for field, method in by_field.items():
        assert of_calls[field].message_type is method.request.DESCRIPTOR
        assert of_answers[field].message_type is method.response.DESCRIPTOR


def test_methods_when_a_late_answer_says_nothing() -> None:
    waiting = {path.split("/")[2] for path, method in TABLE.items() if method.is_waiting}
    assert waiting == {"Receive", "PollChecks", "TransferMaster", "ChangeMembers"}
