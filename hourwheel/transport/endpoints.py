"""Which node to ask next: the rules alone, no socket and no clock.

One endpoint is the *current* one; all calls and streams go there until something speaks against it.

    what happened at endpoint E           what follows
    answered within half a second         nothing; an earlier doubt of E is forgotten
    answered, but later                   E is slow: avoided for a while (`SLOW_MS`)
    "not the master, X is, in epoch e"    X becomes the current one, at once
    "not the master"                      E is avoided for a moment; another one is asked at once
    cut, refused, no answer in time       E is gone: avoided, twice as long each time in a row
    overloaded, disk full, bad request    nothing: this is no matter of the place

The idea is that of RocketMQ's producers (LatencyFaultTolerance): a measured latency falls into a
class, and the class says how long the endpoint is avoided; where all are avoided, the least bad one
is taken. There 550 ms cost 30 s and 15 s cost 10 minutes, since any of many brokers takes a
message. Here one node of a few does, and another takes over within seconds: so our times are about
a tenth, and avoiding is a doubt, and nothing final. A slow endpoint is used in
spite of it when another node names it as the master or cannot name any; then it is not doubted
again before the time for which it was to be avoided is over.

A name given as the master is believed if its epoch is not below the highest one seen. In an epoch
that is known, an endpoint that has just been found gone or not to be the master is not asked again
at once, from whichever node: else two nodes that point at each other would keep a client running.

Assumes one master for all that a client does, that is, one shard. Addresses that the cluster tells
of are learned, up to `LEARNED_MAX`, and forgotten when it lists them no more; configured ones stay.
Times are by one monotonic clock. Given the same facts and fractions, the choices are the same.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from math import inf
from typing import Any, Final, TypeAlias

from hourwheel import errors

Servers: TypeAlias = str | Sequence[str]
"""host:port of a node, several of them with commas between, or a sequence of such texts."""

SLOW_MS: Final = ((10_000.0, 30_000.0), (3_000.0, 10_000.0), (1_000.0, 5_000.0), (550.0, 2_000.0))
"""(latency from which on, how long to avoid), the largest first. A flush of a busy disk stays
below; what is above is a node that swaps, is stopped, or lies behind a link that fails."""
NOT_MASTER_MS: Final = 100.0
"""How long to avoid who is not the master: an election may be about to make it one."""
GONE_MS_MIN: Final = 500.0
GONE_MS_MAX: Final = 5_000.0
NAMED_GONE_MS: Final = 1_000.0
"""How long at most to avoid one that is gone while others still name it as the master."""
LEARNED_MAX: Final = 16
ASK_AGAIN_MS: Final = 10_000.0
"""The cluster is asked for its nodes at first, and after trouble, but not more often than this."""
_LEARNABLE: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]+):(?P<port>[0-9]{1,5})")
_ADDRESS: Final = re.compile(
    r"(?:unix|unix-abstract|dns|ipv4|ipv6):\S+|(?:\[[^\s\[\]]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})"
)
_NO_HOSTS: Final = ("0.0.0.0", "[::]")  # noqa: S104 - what must not be connected to
_PORT_MAX: Final = 65_535


class Move(Enum):
    """Where the next try goes after a failure, and how soon."""

    STAY = "stay"
    """Another place would not help: wait, longer each time."""
    AT_ONCE = "at once"
    """There is an endpoint of which nothing bad is known: no need to wait."""
    SEARCH = "search"
    """All are in trouble, which a new master may end at any moment: wait, but not for long."""


class Trouble(IntEnum):
    """Why an endpoint is avoided."""

    NONE = 0
    SLOW = 1
    NOT_MASTER = 2
    GONE = 3


@dataclass(slots=True)
class _Endpoint:
    address: str
    is_configured: bool
    trouble: Trouble = Trouble.NONE
    until_ms: float = -inf
    """It is avoided until then."""
    failed_ms: float = -inf
    """When something last spoke against it."""
    gone_count: int = 0
    """How often in a row it was found gone, once for each time that it was avoided."""
    trusted_until_ms: float = -inf
    """Until then slowness is no news: it was needed all the same."""

    def is_avoided(self, now_ms: float) -> bool:
        return now_ms < self.until_ms

    def avoid(self, trouble: Trouble, now_ms: float, duration_ms: float) -> None:
        self.trouble, self.failed_ms = trouble, now_ms
        self.until_ms = now_ms + duration_ms

    def clear(self) -> None:
        if self.trouble is Trouble.SLOW:
            self.trusted_until_ms = max(self.trusted_until_ms, self.until_ms)
        self.trouble, self.until_ms = Trouble.NONE, -inf


def parse_servers(servers: Servers) -> tuple[str, ...]:
    """The addresses in `servers`, each once, in order.

    Raises:
        InvalidArgument: there is none, or one of them is no address.
    """
    given: Any = servers  # what no type checker has looked at may be anything
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise errors.InvalidArgument(f"{servers!r} is not host:port, or several of them in a list")
    addresses = [part.strip() for text in texts for part in text.split(",")]
    if not addresses or not all(map(_is_address, addresses)):
        raise errors.InvalidArgument(f"{servers!r} is not host:port, or several with commas")
    return tuple(dict.fromkeys(addresses))


def _is_address(text: str) -> bool:
    """Whether it is host:port, or begins as gRPC's other ways to name a place."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and (match["port"] is None or 0 < int(match["port"]) <= _PORT_MAX)


def is_learnable(address: str) -> bool:
    """Whether a node's word for an address can be used: host:port that one can connect to."""
    match = _LEARNABLE.fullmatch(address)
    return (
        match is not None and match["host"] not in _NO_HOSTS and 0 < int(match["port"]) <= _PORT_MAX
    )


def slow_ms(latency_ms: float) -> float:
    """How long to avoid an endpoint whose answer took so long; 0: not at all."""
    return next((avoided for least, avoided in SLOW_MS if latency_ms >= least), 0.0)


class Endpoints:
    """What is known of a cluster's nodes. One for each `Channel`."""

    def __init__(self, configured: Iterable[str]) -> None:
        """`configured`: addresses that are never forgotten, at least one."""
        self._known = {address: _Endpoint(address, is_configured=True) for address in configured}
        errors.invariant(bool(self._known), "a client needs an endpoint")
        self._current: str | None = None
        self._master: str | None = None
        self._epoch = 0
        self._ask_ms: float = -inf
        self._is_ask_wanted = True

    # --- what the shell asks --------------------------------------------------------------------

    @property
    def addresses(self) -> tuple[str, ...]:
        """All that are known, configured ones first."""
        return tuple(self._known)

    @property
    def is_alone(self) -> bool:
        """Whether there is only one."""
        return len(self._known) == 1

    @property
    def epoch(self) -> int:
        """The highest epoch that a node has reported; 0: none yet."""
        return self._epoch

    def trouble_at(self, address: str, now_ms: float) -> Trouble:
        """Why an endpoint is avoided now."""
        endpoint = self._known[address]
        return endpoint.trouble if endpoint.is_avoided(now_ms) else Trouble.NONE

    def choose(self, now_ms: float, fraction: float) -> str:
        """Where to send the next request.

        The current one if it is not avoided; else the master if it is known and not avoided; else
        of those that are not avoided the one that has been well for longest; else the least bad:
        a slow one, one that answers although it is not the master (and will name the next one), one
        that is gone; of these the one whose last failure is the longest ago.

        Args:
            now_ms: now.
            fraction: a random number in [0, 1): decides between equals.
        """
        settled = self.find_settled(now_ms)
        if settled is not None:
            return settled
        ranks = {one.address: self._rank(one, now_ms) for one in self._known.values()}
        best = min(ranks.values())
        equals = [address for address, rank in ranks.items() if rank == best]
        chosen = self._current
        if chosen is None or chosen not in equals:
            chosen = self._current = equals[int(fraction * len(equals))]
        return chosen

    def find_settled(self, now_ms: float) -> str | None:
        """What `choose` gives whatever the random number is, which costs each call a system call.

        None: there is something to choose.
        """
        current = self._known.get(self._current or "")
        return None if current is None or current.is_avoided(now_ms) else current.address

    def is_doubtful(self, address: str) -> bool:
        """Whether an endpoint was gone when it was last asked: it need not be waited for long."""
        endpoint = self._known.get(address)
        return endpoint is not None and endpoint.gone_count > 0

    def is_ask_due(self, now_ms: float) -> bool:
        """Whether to ask the cluster for its nodes now; counts as asked if so."""
        if not self._is_ask_wanted or now_ms < self._ask_ms:
            return False
        self._is_ask_wanted = False
        self._ask_ms = now_ms + ASK_AGAIN_MS
        return True

    # --- what happens ---------------------------------------------------------------------------

    def on_answer(self, address: str, now_ms: float, latency_ms: float) -> None:
        """`address` did what it was asked, after `latency_ms`."""
        endpoint = self._known.get(address)
        if endpoint is None:
            return
        endpoint.gone_count = 0
        avoided_ms = slow_ms(latency_ms)
        if avoided_ms and now_ms >= endpoint.trusted_until_ms:
            endpoint.avoid(Trouble.SLOW, now_ms, avoided_ms)
        elif not avoided_ms and endpoint.trouble is not Trouble.NOT_MASTER:
            endpoint.trouble, endpoint.until_ms = Trouble.NONE, -inf

    def on_failure(
        self, address: str, now_ms: float, error: errors.HourwheelError, waited_ms: float = 0.0
    ) -> Move:
        """A call to `address` failed, or its stream broke.

        Args:
            address: who was asked.
            now_ms: now.
            error: why. Of `NotMaster` the params `master_address` and `epoch` are heeded.
            waited_ms: for a `Timeout`: how long there was no answer.
        """
        endpoint = self._known.get(address)
        if isinstance(error, errors.NotMaster):
            self._is_ask_wanted = True
            return self._on_not_master(endpoint, address, now_ms, error)
        if isinstance(error, errors.Timeout):
            gone_ms = slow_ms(waited_ms)
        elif isinstance(error, errors.Unavailable) and not isinstance(error, errors.ClockUnsure):
            gone_ms = GONE_MS_MIN
        else:
            gone_ms = 0.0
        if not gone_ms:
            return Move.STAY
        self._is_ask_wanted = True
        if endpoint is not None:
            self._on_gone(endpoint, now_ms, gone_ms)
            self._leave(address)
        return Move.STAY if self.is_alone else self._find_move(address, now_ms)

    def on_nodes(self, addresses: Iterable[str], master: str, epoch: int) -> None:
        """The cluster listed its nodes.

        A list of one is no cluster: nothing is learned from it. Then an address given to the client
        that leads there by another name (a proxy, a forwarded port) stays the only one.

        Args:
            addresses: where its nodes say they are; what cannot be used is left out.
            master: one of them; empty for none or unknown.
            epoch: in which that is so; a list of an epoch long gone is not looked at.
        """
        listed = [address for address in dict.fromkeys(addresses) if is_learnable(address)]
        if len(listed) <= 1 or epoch < self._epoch:
            return
        for address, endpoint in list(self._known.items()):
            if not endpoint.is_configured and address not in listed:
                self._forget(address)
        for address in listed[:LEARNED_MAX]:
            self._learn(address)
        is_news = 0 < self._epoch < epoch
        self._epoch = epoch
        if master in self._known:
            self._master = master
            if is_news and self._current in listed:
                self._current = None  # the master is the first choice

    # --- rules ----------------------------------------------------------------------------------

    def _rank(self, endpoint: _Endpoint, now_ms: float) -> tuple[bool, int, float]:
        if endpoint.is_avoided(now_ms):
            return True, endpoint.trouble, endpoint.failed_ms
        return False, endpoint.address != self._master, endpoint.failed_ms

    def _on_gone(self, endpoint: _Endpoint, now_ms: float, gone_ms: float) -> None:
        """Many calls may fail in one moment: they count as one failure."""
        if not (endpoint.trouble is Trouble.GONE and endpoint.is_avoided(now_ms)):
            gone_ms = min(GONE_MS_MAX, gone_ms * 2.0 ** min(endpoint.gone_count, 30))
            endpoint.gone_count += 1
            endpoint.avoid(Trouble.GONE, now_ms, gone_ms)
        endpoint.failed_ms = now_ms
        endpoint.trusted_until_ms = -inf

    def _on_not_master(
        self,
        endpoint: _Endpoint | None,
        address: str,
        now_ms: float,
        error: errors.NotMaster,
    ) -> Move:
        if endpoint is not None:
            endpoint.gone_count = 0
            endpoint.avoid(Trouble.NOT_MASTER, now_ms, NOT_MASTER_MS)
        self._leave(address)
        if self._master == address:
            self._master = None
        named, epoch = error.master_address, error.epoch or self._epoch
        if epoch >= self._epoch and named != address and self._learn(named):
            master = self._known[named]
            is_news = epoch > self._epoch
            self._epoch, self._master = epoch, named
            if is_news or not master.is_avoided(now_ms) or master.trouble is Trouble.SLOW:
                master.clear()
                self._current = named
                return Move.AT_ONCE
            if master.trouble is Trouble.GONE:
                master.until_ms = min(master.until_ms, master.failed_ms + NAMED_GONE_MS)
        else:
            self._epoch = max(epoch, self._epoch)
        for one in self._known.values():
            if one.trouble is Trouble.SLOW:
                one.clear()  # better slow than none
        return self._find_move(address, now_ms)

    def _leave(self, address: str) -> None:
        if self._current == address:
            self._current = None

    def _find_move(self, address: str, now_ms: float) -> Move:
        others = (one for one in self._known.values() if one.address != address)
        is_good = any(not one.is_avoided(now_ms) for one in others)
        return Move.AT_ONCE if is_good else Move.SEARCH

    def _learn(self, address: str) -> bool:
        """Whether `address` is known, now at the latest."""
        if address in self._known:
            return True
        if not is_learnable(address):
            return False
        learned = [one for one in self._known.values() if not one.is_configured]
        if len(learned) >= LEARNED_MAX:
            spare = [one for one in learned if one.address not in {self._current, self._master}]
            self._forget(min(spare, key=lambda one: one.gone_count == 0).address)
        self._known[address] = _Endpoint(address, is_configured=False)
        return True

    def _forget(self, address: str) -> None:
        del self._known[address]
        self._leave(address)
        if self._master == address:
            self._master = None
