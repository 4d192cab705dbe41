"""Subscriptions with what their files say: secrets, and who signs the target's certificate."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hourwheel import errors
from hourwheel.webhooks.names import Names
from hourwheel.webhooks.post import Poster
from hourwheel.webhooks.settings import PushSettings, Subscription, read_push_settings


@dataclass(frozen=True, slots=True)
class Prepared:
    """One that can be served. Two are equal if nothing that they were made of differs."""

    subscription: Subscription
    secrets: tuple[bytes, ...] = field(repr=False)
    ca: bytes = field(repr=False)
    poster: Poster = field(compare=False)


def prepare(one: Subscription, names: Names | None = None) -> Prepared:
    """Read its files. Raises ConfigError: a secret or an authority cannot be used.

    `names`: where addresses come from, shared with other subscriptions; None: its own.
    """
    try:
        ca = Path(one.ca).read_bytes() if one.ca else b""
    except OSError as error:
        text = f"{one.name}: ca = {one.ca!r} cannot be used: {error}"
        raise errors.ConfigError(text) from None
    poster = Poster(
        one.target,
        timeout_ms=one.timeout_ms,
        ca=one.ca,
        allow_private=one.allow_private,
        keep_ms=one.keep_ms,
        kept_max=one.concurrency,
        names=names,
    )
    return Prepared(one, one.secrets(), ca, poster)


def read_prepared(
    path: Path, names: Names | None = None
) -> tuple[tuple[Prepared, ...], Sequence[str]]:
    """All subscriptions of a file, and the paths of all files that were read.

    `names` as for `prepare`.

    Raises:
        ConfigError: one of them cannot be used.
    """
    settings = read_push_settings(path)
    prepared = tuple(prepare(one, names) for one in settings.subscriptions)
    return prepared, [str(path), *_named(settings)]


def _named(settings: PushSettings) -> list[str]:
    pairs = [(one.secret_file, one.ca) for one in settings.subscriptions]
    return [path for pair in pairs for path in pair if path]
