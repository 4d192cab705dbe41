"""A copy of a protobuf message with some fields set anew, as `dataclasses.replace` makes one."""

from typing import Any, TypeVar

from google.protobuf.message import Message

AnyMessage = TypeVar("AnyMessage", bound=Message)


def changed(message: AnyMessage, **fields: Any) -> AnyMessage:
    """`fields`: their values by name; None: not set."""
    copy = type(message)()
    copy.CopyFrom(message)
    for name in fields:
        copy.ClearField(name)
    copy.MergeFrom(type(message)(**fields))
    return copy
