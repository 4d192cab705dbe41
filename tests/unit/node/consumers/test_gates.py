"""Alarms of queues that somebody waits for: by what those who wait were asked for last."""

from node.consumers.waiters import Gates, Look


class Queues:
    """Queues with entries that open at these instants."""

    def __init__(self, **opens_ms: list[int]) -> None:
        self.opens_ms = {int(name[1:]): times for name, times in opens_ms.items()}
        self.looks_max: int | None = None
        """So many entries are looked at in one call."""
        self.look_count = 0
        self.gates = Gates(self.look)
        self._visible: dict[int, int] = {}

    def look(self, queue: int, now_ms: int) -> Look:
        self.look_count += 1
        times = self.opens_ms.get(queue, [])
        at, looks = self._visible.get(queue, 0), 0
        while at < len(times) and times[at] <= now_ms and looks != self.looks_max:
            at, looks = at + 1, looks + 1
        self._visible[queue] = at
        return Look(at, times[at] if at < len(times) else None)


def test_queue_opens_when_its_first_entry_does() -> None:
    queues = Queues(q1=[50, 60])
    queues.gates.watch(1, 40)
    assert queues.gates.next_ms() == 50
    assert queues.gates.open((), 49) == set()
    assert queues.gates.open((), 50) == {1}
    assert queues.gates.next_ms() == 60
    assert queues.gates.open((), 90) == {1}
    assert queues.gates.next_ms() is None


def test_alarm_stays_when_another_moves_the_visible_end() -> None:
    """Another group's Receive looks at the queue between two turns."""
    queues = Queues(q1=[50], q2=[])
    queues.gates.watch(1, 40)
    assert queues.look(1, 55) == Look(1, None), "it is visible now, to whoever asks"
    assert queues.gates.open({2}, 56) == {1}
    assert queues.gates.next_ms() is None


def test_alarm_stays_when_others_begin_to_wait() -> None:
    queues = Queues(q1=[50], q2=[])
    queues.gates.watch(1, 40)
    queues.gates.watch(2, 41)
    queues.gates.watch(1, 52)
    assert queues.gates.next_ms() == 50


def test_touched_queues_open_in_any_case_and_only_watched_ones() -> None:
    queues = Queues(q1=[], q2=[])
    queues.gates.watch(1, 40)
    assert queues.gates.open({1, 2}, 41) == {1}
    queues.opens_ms[1] = [45]
    assert queues.gates.open({1}, 42) == {1}
    assert queues.gates.open({1}, 42) == {1}
    assert queues.gates.next_ms() == 45


def test_queue_that_was_not_looked_through_opens_again_at_once() -> None:
    queues = Queues(q1=[1, 2, 3, 4, 5])
    queues.looks_max = 2
    queues.gates.watch(1, 40)
    assert queues.gates.next_ms() == 3
    assert queues.gates.open((), 40) == {1}
    assert queues.gates.next_ms() == 5
    assert queues.gates.open((), 40) == {1}
    assert queues.gates.next_ms() is None


def test_nothing_opens_that_nobody_watches_any_more() -> None:
    queues = Queues(q1=[50], q2=[60])
    queues.gates.watch(1, 40)
    queues.gates.watch(2, 40)
    queues.gates.unwatch(1)
    assert queues.gates.next_ms() == 60
    queues.gates.watch(1, 41)
    assert queues.gates.next_ms() == 50
    queues.gates.clear()
    assert queues.gates.next_ms() is None
    assert queues.gates.open({1, 2}, 99) == set()


def test_queue_that_has_grown_opens_only_when_more_is_visible() -> None:
    queues = Queues(q1=[])
    queues.gates.watch(1, 40)
    queues.opens_ms[1] = [45]
    assert queues.gates.open((), 42, grown={1, 2}) == set()
    assert queues.gates.next_ms() == 45
    queues.opens_ms[1] = [45, 46]
    assert queues.gates.open((), 45, grown={1}) == {1}
    queues.opens_ms[1] = [45, 46, 46]
    assert queues.gates.open((), 46, grown={1}) == {1}
    assert queues.gates.next_ms() is None


def test_queue_that_has_grown_opens_for_those_who_were_served_before_another_looked() -> None:
    queues = Queues(q1=[])
    queues.gates.watch(1, 40)
    queues.opens_ms[1] = [40]
    assert queues.look(1, 41) == Look(1, None), "it is visible now, to whoever asks"
    assert queues.gates.open((), 42, grown={1}) == {1}


def test_what_comes_behind_a_closed_entry_is_not_looked_at() -> None:
    """Each DISPATCH record lets queues grow, ahead of time."""
    queues = Queues(q1=[50])
    queues.gates.watch(1, 40)
    looks = queues.look_count
    queues.opens_ms[1] = [50, 44]
    assert queues.gates.open((), 45, grown={1}) == set()
    assert queues.look_count == looks
    assert queues.gates.next_ms() == 50
    assert queues.gates.open((), 50, grown={1}) == {1}, "and what has opened behind it"
    assert queues.gates.next_ms() is None
