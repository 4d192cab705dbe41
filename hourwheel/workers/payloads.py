"""Python values as the bodies of messages, and back.

Bytes go as they are, texts as UTF-8, everything else as JSON. What a handler gets is said by the
annotation of its first parameter:

    bytes            the body
    str              the body as UTF-8
    dict, list, ...  the body as JSON, of that type
    a model          the body as JSON, checked by pydantic: its models, dataclasses, TypedDicts,
                     list[Model] and whatever else it knows; needs hourwheel[workers]
    none, Any        by the message's content type: JSON, a text, or bytes
"""

import dataclasses
import json
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeAlias, get_origin

from hourwheel.errors import InvalidArgument

JSON_TYPE: Final = "application/json"
TEXT_TYPE: Final = "text/plain"
Decode: TypeAlias = Callable[[bytes, str], Any]
"""From a body and its content type."""
_JSON_TYPES: Final = (dict, list, int, float, bool)


class InvalidPayload(ValueError):
    """A body is not what its handler takes. Says where, and nothing of its content."""


def encode(value: object) -> tuple[bytes, str]:
    """The body of a message, and its content type.

    Raises:
        InvalidArgument: JSON has no such value, or UTF-8 no such text.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value), ""
    dump: Callable[[], str] | None = getattr(value, "model_dump_json", None)
    try:
        if isinstance(value, str):
            return value.encode(), TEXT_TYPE
        if dump is not None:
            return dump().encode(), JSON_TYPE
        text = json.dumps(
            value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_as_fields
        )
        return text.encode(), JSON_TYPE
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"half a surrogate pair at {error.start} is no text") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(
            f"a body of type {type(value).__name__} is no JSON: {error}"
        ) from None


def _as_fields(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def decoder(annotation: Any) -> Decode:
    """How bodies become what a parameter with this annotation takes.

    The function raises `InvalidPayload`.

    Raises:
        InvalidArgument: that needs pydantic, which is not installed, or there is no way.
    """
    if annotation is Any or annotation is object:
        return _by_content_type
    if annotation is bytes:
        return lambda body, _: body
    if annotation is str:
        return lambda body, _: _text(body)
    if annotation in _JSON_TYPES:
        return lambda body, _: _of_type(body, annotation)
    return _checked_by_pydantic(annotation)


def _by_content_type(body: bytes, content_type: str) -> Any:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == JSON_TYPE:
        return _json(body)
    return _text(body) if kind == TEXT_TYPE else body


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidPayload(f"the body is no UTF-8 at byte {error.start}") from None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except RecursionError:
        raise InvalidPayload("the body is nested too deeply") from None
    except ValueError as error:
        where = getattr(error, "pos", getattr(error, "start", 0))
        raise InvalidPayload(f"the body is no JSON at {where}") from None


def _of_type(body: bytes, wanted: type) -> Any:
    value = _json(body)
    is_number = wanted is float and type(value) is int
    if type(value) is not wanted and not is_number:
        raise InvalidPayload(f"the body is a {type(value).__name__}, and no {wanted.__name__}")
    return float(value) if is_number else value


def _checked_by_pydantic(annotation: Any) -> Decode:
    try:
        pydantic = import_module("pydantic")
    except ImportError:
        base = get_origin(annotation)
        if base in _JSON_TYPES:
            return lambda body, _: _of_type(body, base)
        raise InvalidArgument(
            f"a handler's {annotation!r} needs pydantic: pip install 'hourwheel[workers]'"
        ) from None
    try:
        adapter = pydantic.TypeAdapter(annotation)
    except pydantic.errors.PydanticUserError as error:
        raise InvalidArgument(f"pydantic cannot read a body as {annotation!r}: {error}") from None

    def decode(body: bytes, _: str) -> Any:
        try:
            return adapter.validate_json(body)
        except pydantic.ValidationError as error:
            parts = error.errors(include_url=False, include_context=False, include_input=False)
            texts = (
                f"{'.'.join(map(str, part['loc'])) or 'the body'}: {part['msg']}" for part in parts
            )
            raise InvalidPayload("; ".join(texts)) from None

    return decode
