"""Users' secrets, checked against Argon2 hashes: slow on purpose, so few at a time and remembered.

    check --> remembered? --> yes or no at once
          --> under way for the same secret? --> wait for that
          --> a place, one of few, and of these few for each source --> a thread --> remember

A check takes some 50 ms of a processor. Who sends wrong secrets has the places of one source
and no more; who has logged in before needs none. A user who is not there takes as long as one who
is. What is remembered belongs to the hash: a new hash is a new question.
"""

import asyncio
import base64
import hashlib
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import argon2

from hourwheel import errors

SECRET_CHARS_MAX: Final = 1_024
PLACES: Final = 32
"""Checks that wait or are made, all together."""
PLACES_A_SOURCE: Final = 2
REMEMBERED_MAX: Final = 4_096
RIGHT_MS: Final = 300_000.0
"""So long a right secret is remembered, unless its user's hash changes."""
WRONG_MS: Final = 10_000.0
MEMORY_KIB_MAX: Final = 256 * 1024
TIME_COST_MAX: Final = 16
PARALLELISM_MAX: Final = 16
"""What the check of one hash may cost at most; such hashes belong to no user."""

FindHash = Callable[[str], str | None]
"""From a user's name to the hash of the secret; None: there is no such user."""

HASHER = argon2.PasswordHasher()
"""Makes hashes, and says what they cost. Tests have a cheap one."""


def hash_of(secret: str) -> str:
    """What is stored of a secret; takes some 50 ms of a processor."""
    return HASHER.hash(secret)


def is_affordable(hashed: str) -> bool:
    """Whether it is an Argon2 hash that costs no more to check than a node has for it."""
    try:
        cost = argon2.extract_parameters(hashed)
    except argon2.exceptions.InvalidHashError:
        return False
    return (
        cost.memory_cost <= MEMORY_KIB_MAX
        and cost.time_cost <= TIME_COST_MAX
        and cost.parallelism <= PARALLELISM_MAX
    )


def verify(hashed: str, secret: str) -> bool:
    """Whether it is the one; never where the hash costs too much: see `is_affordable`."""
    if not is_affordable(hashed):
        return False
    try:
        return HASHER.verify(hashed, secret)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


def _hash_of_nothing() -> str:
    """A hash that no secret has, as dear to check as a user's."""
    cost = f"m={HASHER.memory_cost},t={HASHER.time_cost},p={HASHER.parallelism}"
    salt, digest = (
        base64.b64encode(secrets.token_bytes(length)).decode().rstrip("=")
        for length in (HASHER.salt_len, HASHER.hash_len)
    )
    return f"$argon2id$v=19${cost}${salt}${digest}"


class UserSecrets:
    """See the top of this file. Belongs to one event loop.

    Invariant: each digest of `_under_way` has one place of its source in `_sources`.
    """

    def __init__(
        self,
        find_hash: FindHash,
        monotonic_ms: Callable[[], float],
        verify: Callable[[str, str], bool] = verify,
    ) -> None:
        """Nothing is checked yet.

        Args:
            find_hash: of a user; quick, and asked each time.
            monotonic_ms: for how long a result is remembered.
            verify: of (hash, secret); called in a thread.
        """
        self.find_hash, self._monotonic_ms, self._verify = find_hash, monotonic_ms, verify
        self._key = secrets.token_bytes(32)
        self._nobody = _hash_of_nothing()
        """Stands for users who are not there."""
        self._remembered: OrderedDict[bytes, tuple[bool, float]] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Task[bool]] = {}
        self._sources: Counter[str] = Counter()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="hourwheel-secrets")

    def close(self) -> None:
        """Check nothing more; what is being checked in the thread ends by itself."""
        for task in self._under_way.values():
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def check(self, name: str, secret: str, source: str) -> bool:
        """Whether `secret` is that of user `name`.

        Args:
            name: of the user.
            secret: as it was sent.
            source: where it comes from, for its share of the places.

        Raises:
            Overloaded: too many are being checked.
        """
        if len(secret) > SECRET_CHARS_MAX:
            return False
        hashed = self.find_hash(name)
        digest = self._digest(hashed or self._nobody, name, secret)
        known = self._remembered.get(digest)
        if known is not None and self._monotonic_ms() < known[1]:
            return known[0]
        task = self._under_way.get(digest)
        if task is None:
            task = self._begin(digest, hashed, secret, source)
        return await asyncio.shield(task)

    def is_hash_of(self, name: str, hashed: str | None) -> bool:
        """Whether the user's hash is still this one. Raises Unavailable: see `FindHash`."""
        return self.find_hash(name) == hashed

    def _digest(self, hashed: str, name: str, secret: str) -> bytes:
        found = hashlib.blake2b(key=self._key, digest_size=32)
        for text in (hashed, name, secret):
            raw = text.encode("utf-8", "surrogatepass")
            found.update(len(raw).to_bytes(4, "big"))
            found.update(raw)
        return found.digest()

    def _begin(
        self, digest: bytes, hashed: str | None, secret: str, source: str
    ) -> "asyncio.Task[bool]":
        if len(self._under_way) >= PLACES or self._sources[source] >= PLACES_A_SOURCE:
            raise errors.Overloaded("too many secrets are being checked", limit="secrets")
        self._sources[source] += 1
        task = asyncio.get_running_loop().create_task(self._run(digest, hashed, secret))
        self._under_way[digest] = task

        def end(_: object) -> None:
            del self._under_way[digest]
            self._sources[source] -= 1
            if not self._sources[source]:
                del self._sources[source]

        task.add_done_callback(end)
        return task

    async def _run(self, digest: bytes, hashed: str | None, secret: str) -> bool:
        loop = asyncio.get_running_loop()
        is_right = await loop.run_in_executor(
            self._threads, self._verify, hashed or self._nobody, secret
        )
        is_right = is_right and hashed is not None
        until_ms = self._monotonic_ms() + (RIGHT_MS if is_right else WRONG_MS)
        self._remembered[digest] = (is_right, until_ms)
        while len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        return is_right
