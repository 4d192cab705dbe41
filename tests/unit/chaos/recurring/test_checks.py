"""What was promised of recurrences, by hand: what is planted is found, and nothing else."""

from chaos.history import Change, Entry, History, Occurred, Occurrence, Stored
from chaos.recurring.checks import recurring
from hourwheel.formats.message_id import MessageId

TOPIC = "reports"


def life() -> tuple[History, Stored]:
    """Six occurrences of version 8; then a pause, which takes one back; two of version 99."""
    history, stored = History(every_ms=1_000), Stored(recurred={"a": []})
    for number in range(6):
        come(history, stored, Occurred(8, number, 10_000 + 1_000 * number), sequence=number)
    history.changes = [
        Change("a", "put", 8_999.0, 9_000.0),
        Change("a", "pause", 15_100.0, 15_200.0),
        Change("a", "resume", 17_000.0, 17_100.0),
    ]
    stored.occurrences[6] = Occurred(8, 6, 16_000)
    stored.cancelled.add(6)
    for number in range(2):
        come(history, stored, Occurred(99, number, 18_000 + 1_000 * number), sequence=7 + number)
    return history, stored


def come(history: History, stored: Stored, one: Occurred, *, sequence: int) -> None:
    message_id = MessageId(0, 1, sequence, one.due_ms)
    stored.occurrences[sequence] = one
    stored.recurred["a"].append((one.due_ms, sequence))
    stored.queued.append(Entry(TOPIC, sequence, 1))
    history.occurrences.append(Occurrence("a", one.number, message_id, one.due_ms))


def names(history: History, stored: Stored) -> set[str]:
    return {name for name, _ in recurring(history, stored)}


def test_nothing_is_found_when_each_occurrence_comes_once() -> None:
    history, stored = life()
    history.occurrences.append(history.occurrences[0])  # delivery is at least once
    assert names(history, stored) == set()


def test_occurrence_is_found_when_it_comes_twice() -> None:
    history, stored = life()
    one = history.occurrences[0]
    history.occurrences.append(one._replace(message_id=one.message_id._replace(sequence=3_000)))
    assert names(history, stored) == {"occurrence twice"}
    history, stored = life()
    stored.recurred["a"].append((19_000, 50))
    assert names(history, stored) == {"occurrence twice"}
    stored.cancelled.add(50)
    assert names(history, stored) == set()


def test_occurrence_is_found_when_it_was_left_out() -> None:
    history, stored = life()
    del stored.occurrences[3]
    stored.recurred["a"].remove((13_000, 3))
    stored.queued = [one for one in stored.queued if one.sequence != 3]
    history.occurrences = [one for one in history.occurrences if one.message_id.sequence != 3]
    assert names(history, stored) == {"occurrence lost"}


def test_occurrence_is_found_when_it_came_to_nobody() -> None:
    history, stored = life()
    del history.occurrences[4]
    assert names(history, stored) == {"not delivered"}


def test_occurrence_is_found_when_it_comes_in_a_pause() -> None:
    history, stored = life()
    stored.cancelled.clear()
    stored.recurred["a"].insert(6, (16_000, 6))
    assert names(history, stored) == {"occurrence unwanted"}
    (pause,) = [one for one in history.changes if one.verb == "pause"]
    ahead_ms = 16_000 - pause.answered_ms  # what is released this long before cannot be taken back
    assert list(recurring(history, stored, 0.0, ahead_ms)) == []
    assert list(recurring(history, stored, 0.0, ahead_ms - 1)) != []
    history.changes[2:] = [Change("a", "resume", 15_900.0, 15_950.0)]
    assert names(history, stored) == set()
