"""Where the time of a takeover goes: what the nodes' logs say of it, as steps after its cause.

All nodes are on this machine, so the times of their logs are of one clock.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

Event = tuple[float, str, Mapping[str, Any]]
"""(when, in ms since the Unix epoch; its key; its fields)."""

_TAKEOVER: Final = {
    "the successor hears that it is master": "mastership_assigned",
    "the lease is over, or needs none: its epoch begins": "begun",
    "its epoch is noted, and its streams begin": "takeover_started",
    "EPOCH_START is committed": "committed",
    "it serves": "mastership_started",
}
KILL_STEPS: Final = {
    "its control process sees its process end": "broker_ended",
    "Raft's leader proposes a successor": "election_proposed",
    **_TAKEOVER,
}
"""What happens after a master's death, in this order -> the event that says so."""
TRANSFER_STEPS: Final = {
    "the master asks for a successor": "mastership_transfer_requested",
    "Raft's leader proposes it": "election_proposed",
    "the master has stepped down": "mastership_ended",
    **_TAKEOVER,
}
"""The same of a planned transfer."""


def read_events(files: Iterable[Path], from_ms: float) -> list[Event]:
    """What was logged from then on, by whomever, in the order of time."""
    return sorted(_read(files, from_ms), key=lambda event: event[0])


def _read(files: Iterable[Path], from_ms: float) -> Iterator[Event]:
    for file in files:
        for line in file.read_text().splitlines():
            if not line.startswith("{"):
                continue
            fields = json.loads(line)
            at_ms = datetime.fromisoformat(fields["timestamp"]).timestamp() * 1_000
            if at_ms < from_ms:
                continue
            event = str(fields["event"])
            yield at_ms, event, fields
            if event == "mastership_started":
                elected_ms = at_ms - fields["takeover_ms"]
                yield elected_ms + fields["begun_ms"], "begun", fields
                yield elected_ms + fields["committed_ms"], "committed", fields


def find_steps(
    events: Iterable[Event], from_ms: float, steps: Mapping[str, str]
) -> dict[str, float]:
    """Step -> how many ms after `from_ms` it came first; those that were seen."""
    first: dict[str, float] = {}
    for at_ms, event, _ in events:
        first.setdefault(event, at_ms - from_ms)
    return {step: first[event] for step, event in steps.items() if event in first}
