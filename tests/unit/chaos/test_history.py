from pathlib import Path

from chaos.history import (
    Accepted,
    Cancel,
    Chance,
    Delivery,
    Fault,
    Finish,
    Heard,
    History,
    Pause,
    Redrive,
    Reset,
    Sent,
    Sweep,
    Unique,
    body_of,
    serial_of,
)
from hourwheel.formats.message_id import MessageId
from hourwheel.outcomes import CancelOutcome, DedupOutcome

ID = MessageId(0, 3, 7, 1_800_000_000_000)


def a_history() -> History:
    history = History(groups={"workers": ("orders", 3)})
    first, second = history.next_serial(), history.next_serial()
    history.sent[first] = Sent("orders", 1_800_000_000_000, 5.5)
    history.sent[second] = Sent("orders", 1_800_000_000_001, 6.5)
    history.lives[second] = 300
    history.ranks[second] = 7
    history.keys[first] = "k"
    history.sweeps.append(Sweep((first, second), 1_800_000_000_500, 7.0, 8.0))
    history.skips.add(("workers", 7))
    history.accepted[first] = Accepted(ID, 7.5)
    history.refused.add(second)
    history.cancels += [Cancel(first, CancelOutcome.CANCELLED, 8.0, 7.0), Cancel(first, None, 9.0)]
    history.deliveries.append(Delivery("workers", "orders", first, ID, 1, 3, 10, 10.5, 100))
    history.finishes.append(Finish("workers", first, 1, "ack", True, 11.0, 12.0, 0, 3, 8))
    history.resets += [
        Reset("workers", (1, 2), 13.0, 14.0),
        Reset("workers", None, 15.0, 16.0),
    ]
    history.unwritten_resets.append(Reset("workers", None, 17.0, 18.0))
    history.uniques += [
        Unique(first, "a", DedupOutcome.PUBLISHED, None),
        Unique(second, "a", DedupOutcome.KEPT, ID),
    ]
    history.chances.append(Chance(first, 2, 3, 9, 10, "reject", True, 11.0, 12.0))
    history.redrives += [Redrive(4, 11.0, 12.0), Redrive(0, 13.0, None)]
    history.heard.append(Heard("late", second, 10, None))
    history.pauses.append(Pause(True, 11.0, 12.0))
    history.faults.append(Fault("kill", ("n1", "n2"), 1.0, 2.0))
    return history


def test_history_is_the_same_when_it_was_saved_and_loaded(tmp_path: Path) -> None:
    history = a_history()
    history.save(tmp_path / "history.jsonl")
    loaded = History.load(tmp_path / "history.jsonl")
    assert loaded == history
    assert loaded.next_serial() == 3


def test_serial_is_read_when_the_body_is_ours() -> None:
    assert serial_of(body_of(77)) == 77
    assert serial_of(b"x" * 20) is None
