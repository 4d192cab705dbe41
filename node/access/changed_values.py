"""The values that an administrative request sets, for the audit log: bounded, and never a secret.

Numbers, switches and names of constants are written as they are. Of texts only those are that
`WRITTEN` names: a field that is new is left out until somebody has looked at it. Bytes are never
written.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

Value: TypeAlias = bool | int | float | str | bytes

FIELDS_MAX: Final = 32
"""That are written of one request."""
ITEMS_MAX: Final = 16
"""That are written of a list."""
VALUE_CHARS_MAX: Final = 256
MORE: Final = "..."
"""In the place of what is beyond these bounds."""
LEFT_OUT: Final = "(set, not written)"

WRITTEN: Final = frozenset(
    {
        *("control_address", "description", "group", "name", "node_id", "principal"),
        *("remove_node_ids", "resource", "to_node_id", "topic", "user"),
    }
)
"""Names of fields whose texts are written. Not: secrets, filters, and what is a message's own."""
_LOOKING: Final = "List"
"""So the names of requests begin that change nothing."""


def changed_values(request: Message) -> dict[str, str]:
    """Path of a field -> its value, of what is set; nothing of a request that only looks."""
    if request.DESCRIPTOR.name.startswith(_LOOKING):
        return {}
    found: dict[str, str] = {}
    for path, text in _values(request, ""):
        if len(found) == FIELDS_MAX:
            found[MORE] = MORE
            break
        found[path] = text if len(text) <= VALUE_CHARS_MAX else text[:VALUE_CHARS_MAX] + MORE
    return found


def _values(message: Message, prefix: str) -> Iterator[tuple[str, str]]:
    for field, value in message.ListFields():
        path = f"{prefix}{field.name}"
        if field.message_type is None:
            if field.type != FieldDescriptor.TYPE_BYTES:
                yield path, _text(field, (value,) if isinstance(value, Value) else value)
        elif isinstance(value, Message):
            yield from _values(value, f"{path}.")
        else:
            for number, one in enumerate(value):
                yield from _values(one, f"{path}.{number}.")


def _text(field: FieldDescriptor, values: Iterable[Value]) -> str:
    if field.type == FieldDescriptor.TYPE_STRING and field.name not in WRITTEN:
        return LEFT_OUT
    shown = [_word(field.enum_type, value) for value in islice(values, ITEMS_MAX + 1)]
    return ", ".join([*shown[:ITEMS_MAX], *([MORE] if len(shown) > ITEMS_MAX else [])])


def _word(constants: EnumDescriptor | None, value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if constants is not None and isinstance(value, int) and value in constants.values_by_number:
        return str(constants.values_by_number[value].name)
    return str(value)
