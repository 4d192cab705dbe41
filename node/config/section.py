"""What all sections of the configuration have in common."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


def key_of(default: object, unit: str, text: str, **bounds: Any) -> Any:
    """A documented key. `unit` is what one of its value counts; "" for texts and switches."""
    return Field(default, description=text, json_schema_extra={"unit": unit}, **bounds)


class Section(BaseModel):
    """Base of all sections: frozen, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)
