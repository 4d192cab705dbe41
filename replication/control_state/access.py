"""Who may do what, as the control plane keeps it: users, grants and quotas. Pure data.

What a node makes of it is not the control plane's business: it knows the words, and bounds them.

    user    a name, and the hash of its secret. A caller with a certificate or a token is known
            without having an entry here.
    grant   principals may do operations on resources. There is one for each principal, kind and
            name; putting it again replaces its operations.
    quota   what one principal may use. The one for `*` is for each that has none of its own.

A deleted user's grants and quota stay: a name may come with a certificate, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.internal.v1 import control_pb2 as pb

OPERATIONS: Final = frozenset({"publish", "receive", "cancel", "look", "administer"})
KINDS: Final = frozenset({"topic", "group", "cluster"})
CLUSTER: Final = "cluster"
"""The kind whose one resource has no name."""
WILDCARD: Final = "*"
ENTRY_COUNT_MAX: Final = 10_000
"""Of users; as many of grants and of quotas."""
PRINCIPAL_BYTES_MAX: Final = 256
RESOURCE_BYTES_MAX: Final = 256
SECRET_HASH_BYTES_MAX: Final = 512
LIMIT_MAX: Final = 1 << 53
"""Of what is stored of a limit."""


class GrantKey(NamedTuple):
    """The principal of a grant, and its resource."""

    principal: str
    """A name, or the beginning of names before a `*` at its end."""
    kind: str
    """One of KINDS."""
    name: str
    """Of the resource; as `principal`. Of the cluster: empty."""


@dataclass(frozen=True)
class User:
    """Somebody who is known by a name and a secret."""

    name: str
    secret_hash: str = field(repr=False)
    """Salted, in the text form of its algorithm."""
    version: int


@dataclass(frozen=True)
class StoredGrant:
    """What is allowed."""

    key: GrantKey
    operations: frozenset[str]
    """Some of OPERATIONS; never empty."""
    version: int


@dataclass(frozen=True)
class QuotaLimits:
    """What a principal may use: one more than each limit, so that 0 is none. See `stored_limit`."""

    messages_per_s: int = 0
    bytes_per_s: int = 0
    pending_messages: int = 0
    topics: int = 0
    groups: int = 0
    connections: int = 0
    """To one node."""
    calls_in_flight: int = 0
    """On one node."""


def stored_limit(limit: int | None) -> int:
    """What `QuotaLimits` has of a limit; None: there is none. A limit of 0 lets nothing through."""
    return 0 if limit is None else limit + 1


def limit_of(stored: int) -> int | None:
    """The limit that `stored` stands for; None: there is none."""
    return stored - 1 if stored else None


@dataclass(frozen=True)
class Quota:
    """One principal's limits."""

    principal: str
    """A name; `*`: each that has no quota of its own."""
    limits: QuotaLimits
    version: int


@dataclass(frozen=True)
class AccessState:
    """See the top of this file. Mappings are never changed by their holders."""

    version: int = 0
    """The control state's revision when anything here was changed last."""
    users: Mapping[str, User] = field(default_factory=lambda: MappingProxyType({}))
    grants: Mapping[GrantKey, StoredGrant] = field(default_factory=lambda: MappingProxyType({}))
    quotas: Mapping[str, Quota] = field(default_factory=lambda: MappingProxyType({}))

    def check(self, revision: int) -> None:
        """Assert the invariants of all fields, in a control state of this revision."""
        errors.invariant(self.version <= revision, "what was changed has a revision")
        for entries in (self.users, self.grants, self.quotas):
            errors.invariant(len(entries) <= ENTRY_COUNT_MAX, "access entries are bounded")
            errors.invariant(
                all(0 < one.version <= self.version for one in entries.values()),
                "an entry is as old as the access state, or older",
            )


# --- what may stand in a command


def why_not_user(name: str, secret_hash: str) -> str:
    """Why there cannot be such a user; empty: there can."""
    if not _is_text(name, PRINCIPAL_BYTES_MAX) or WILDCARD in name:
        return f"a user's name has 1 to {PRINCIPAL_BYTES_MAX} printable bytes, and no {WILDCARD}"
    if not _is_text(secret_hash, SECRET_HASH_BYTES_MAX):
        return f"the hash of a secret has 1 to {SECRET_HASH_BYTES_MAX} printable bytes"
    return ""


def why_not_grant(key: GrantKey, operations: frozenset[str]) -> str:
    """Why there cannot be such a grant; empty: there can."""
    if not _is_pattern(key.principal, PRINCIPAL_BYTES_MAX):
        return f"a principal is a name of 1 to {PRINCIPAL_BYTES_MAX} printable bytes, or `begin*`"
    if key.kind not in KINDS:
        return f"a resource is one of {', '.join(sorted(KINDS))}"
    if key.kind == CLUSTER and key.name:
        return "the cluster has no name"
    if key.kind != CLUSTER and not _is_pattern(key.name, RESOURCE_BYTES_MAX):
        return f"a resource's name has 1 to {RESOURCE_BYTES_MAX} printable bytes, or is `begin*`"
    if not operations or not operations <= OPERATIONS:
        return f"operations are some of {', '.join(sorted(OPERATIONS))}"
    return ""


def why_not_quota(principal: str, limits: QuotaLimits) -> str:
    """Why there cannot be such a quota; empty: there can."""
    if principal != WILDCARD and (
        not _is_text(principal, PRINCIPAL_BYTES_MAX) or WILDCARD in principal
    ):
        return f"a quota is for one name, or for `{WILDCARD}`"
    if any(limit > LIMIT_MAX for limit in vars(limits).values()):
        return f"a limit is at most {LIMIT_MAX}"
    return ""


def _is_text(text: str, bytes_max: int) -> bool:
    return 0 < len(text.encode()) <= bytes_max and text.isprintable()


def _is_pattern(text: str, bytes_max: int) -> bool:
    return _is_text(text, bytes_max) and WILDCARD not in text[:-1]


# --- encoding


def access_data(access: AccessState) -> pb.AccessData:
    """Canonical: equal states give equal messages."""
    return pb.AccessData(
        version=access.version,
        users=[
            pb.UserData(name=one.name, secret_hash=one.secret_hash, version=one.version)
            for _, one in sorted(access.users.items())
        ],
        grants=[
            pb.GrantData(
                key=pb.GrantKey(principal=one.key.principal, kind=one.key.kind, name=one.key.name),
                operations=sorted(one.operations),
                version=one.version,
            )
            for _, one in sorted(access.grants.items())
        ],
        quotas=[
            pb.QuotaData(
                principal=one.principal, limits=limits_data(one.limits), version=one.version
            )
            for _, one in sorted(access.quotas.items())
        ],
    )


def access_of(data: pb.AccessData) -> AccessState:
    """The state that a message carries."""
    grants = (
        StoredGrant(key_of(one.key), frozenset(one.operations), one.version) for one in data.grants
    )
    quotas = (Quota(one.principal, limits_of(one.limits), one.version) for one in data.quotas)
    users = (User(one.name, one.secret_hash, one.version) for one in data.users)
    return AccessState(
        version=data.version,
        users=MappingProxyType({one.name: one for one in users}),
        grants=MappingProxyType({one.key: one for one in grants}),
        quotas=MappingProxyType({one.principal: one for one in quotas}),
    )


def key_of(data: pb.GrantKey) -> GrantKey:
    """The key that a message carries."""
    return GrantKey(data.principal, data.kind, data.name)


def limits_data(limits: QuotaLimits) -> pb.QuotaLimits:
    """The message of the limits."""
    return pb.QuotaLimits(**vars(limits))


def limits_of(data: pb.QuotaLimits) -> QuotaLimits:
    """The limits that a message carries."""
    return QuotaLimits(
        messages_per_s=data.messages_per_s,
        bytes_per_s=data.bytes_per_s,
        pending_messages=data.pending_messages,
        topics=data.topics,
        groups=data.groups,
        connections=data.connections,
        calls_in_flight=data.calls_in_flight,
    )
