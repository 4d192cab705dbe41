"""Where the time of a takeover goes: what the nodes' logs say of it, as steps after a death.

All nodes are on this machine, so the times of their logs are of one clock.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

Event = tuple[float, str, Mapping[str, Any]]
"""(when, in ms since the Unix epoch; its key; its fields)."""

STEPS: Final = {
    "its control process sees its process end": "broker_ended",
    "Raft's leader proposes a successor": "election_proposed",
    "the successor hears that it is master": "mastership_assigned",
    "the lease is over, or needs none: its epoch begins": "takeover_started",
    "EPOCH_START is committed": "committed",
    "it serves": "mastership_started",
}
"""What happens, in this order -> the event that says so."""


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
                yield at_ms - fields["takeover_ms"] + fields["committed_ms"], "committed", fields


def find_steps(events: Iterable[Event], from_ms: float) -> dict[str, float]:
    """Step -> how many ms after `from_ms` it came first; those that were seen."""
    first: dict[str, float] = {}
    for at_ms, event, _ in events:
        first.setdefault(event, at_ms - from_ms)
    return {step: first[event] for step, event in STEPS.items() if event in first}
