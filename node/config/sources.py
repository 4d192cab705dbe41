"""Reading the configuration: one TOML file, then the environment over it.

A variable `HOURWHEEL_<SECTION>__<KEY>` overrides one key of the file.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from hourwheel import errors
from node.config import checks
from node.config.model import NodeConfig

ENVIRONMENT_PREFIX: Final = "HOURWHEEL_"
_NESTED: Final = "__"


def load(path: Path | None, environ: Mapping[str, str] = os.environ) -> NodeConfig:
    """The configuration of `path` (None: only defaults), overridden by `environ`.

    Raises:
        ConfigError: no such file, no TOML, or as `NodeConfig.of`.
    """
    if path is not None:
        _require_toml(path)
    overrides = _overrides(environ)

    class Layers(BaseSettings, NodeConfig):
        """Where the values come from: the environment before the file."""

        model_config = SettingsConfigDict(toml_file=path)

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            """Only the two that are documented."""
            environment = InitSettingsSource(settings_cls, overrides)
            return environment, TomlConfigSettingsSource(settings_cls)

    try:
        return NodeConfig.of(Layers().model_dump(exclude_unset=True))
    except ValidationError as error:
        raise checks.error_of(error, NodeConfig) from None


def _require_toml(path: Path) -> None:
    try:
        tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise errors.ConfigError(f"{path}: cannot be read: {error}", file=path) from None
    except tomllib.TOMLDecodeError as error:
        raise errors.ConfigError(f"{path}: not TOML: {error}", file=path) from None


def _overrides(environ: Mapping[str, str]) -> dict[str, Any]:
    """Sections and keys of `environ`. Names without `__` are for other programs, as the client."""
    found: dict[str, Any] = {}
    for name, value in environ.items():
        section, nested, key = name.removeprefix(ENVIRONMENT_PREFIX).lower().partition(_NESTED)
        if name.startswith(ENVIRONMENT_PREFIX) and nested:
            found.setdefault(section, {})[key] = value
    return found
