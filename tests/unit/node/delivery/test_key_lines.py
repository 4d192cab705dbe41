from node.delivery.key_lines import NO_KEY, KeyLines
from storage.queues.ack_state import BLOCKED_MS, AckWindow

A, B = 17, 18


def lines_of(*keys: int, window: AckWindow, leased: dict[int, int] | None = None) -> KeyLines:
    """Lines over positions 0, 1, ... with these keys."""
    window.changes = []
    lines = KeyLines(0, window.changes, leased or {})
    for position, key in enumerate(keys):
        lines.add(position, key, window)
    return lines


def taken(lines: KeyLines, window: AckWindow, now_ms: int = 0, count_max: int = 100) -> list[int]:
    """What may be leased now; it is."""
    positions = lines.take(count_max, window, now_ms, lambda _key: True)
    lines.lease(positions, 1)
    return positions


def test_the_first_of_each_key_and_all_without_one() -> None:
    window = AckWindow()
    lines = lines_of(A, B, A, NO_KEY, B, NO_KEY, window=window)
    assert taken(lines, window, count_max=1) == [0]
    assert taken(lines, window) == [1, 3, 5]
    assert taken(lines, window) == []


def test_the_next_one_comes_when_the_first_is_resolved() -> None:
    window = AckWindow()
    lines = lines_of(A, A, A, B, window=window)
    assert taken(lines, window) == [0, 3]
    window.resolve(1, 1)  # skipped, out of its turn
    window.resolve(0, 1)
    assert lines.take_changes(window, 0) == []
    assert taken(lines, window) == [2]
    assert len(lines) == 2


def test_what_is_held_comes_again_in_its_place_and_no_other_of_its_key() -> None:
    window = AckWindow()
    lines = lines_of(A, A, B, window=window)
    assert taken(lines, window) == [0, 2]
    window.hold(0, 1, 500)
    assert lines.take_changes(window, 0) == [(0, 1)], "its lease is over"
    assert (taken(lines, window, 499), lines.next_ms()) == ([], 500)
    assert taken(lines, window, 500) == [0]
    window.hold(0, 1, BLOCKED_MS)
    lines.take_changes(window, 0)
    assert taken(lines, window, BLOCKED_MS - 1) == []
    window.free(0, 1)
    lines.take_changes(window, 0)
    assert taken(lines, window) == [0]


def test_keys_that_are_leased_elsewhere_stay() -> None:
    window = AckWindow()
    lines = lines_of(A, B, NO_KEY, window=window)
    assert lines.take(9, window, 0, lambda key: key != A) == [1, 2]
    lines.put_back([1, 2])
    assert taken(lines, window) == [0, 1, 2]


def test_a_leased_message_of_which_nobody_knows_the_key_makes_all_keys_busy() -> None:
    window = AckWindow()
    lines = lines_of(A, window=window, leased={5: 7})
    assert lines.is_leased(B)
    lines.add(5, NO_KEY, window)
    assert not lines.is_leased(B)
    assert not lines.is_leased(A)
    taken(lines, window)
    assert lines.is_leased(A)


def test_what_is_trimmed_leaves() -> None:
    window = AckWindow()
    lines = lines_of(A, A, B, window=window)
    lines.take_changes(window, 1)
    assert taken(lines, window) == [1, 2]


def test_lines_are_over_when_too_much_has_changed() -> None:
    window = AckWindow()
    lines = lines_of(A, B, window=window)
    for position in range(10, 20_000, 2):
        window.resolve(position, 1)
    lines.take_changes(window, 0)
    assert lines.is_over


def windows() -> list[AckWindow]:
    """A window, what the manifest makes of it, and a copy."""
    window = AckWindow(3, [(5, 7)])
    window.hold(2, 9, 40)
    window.hold(4, 5, BLOCKED_MS)
    return [window.copy(), AckWindow.read(window.state(1, 256)), window]


def test_a_window_keeps_what_is_held_and_forgets_it_when_it_is_resolved() -> None:
    for window in windows():
        assert {at: tuple(one) for at, one in window.held.items()} == {
            3: (1, 40),
            4: (2, BLOCKED_MS),
            7: (1, 40),
            8: (1, 40),
        }
        window.resolve(4, 4)
        assert sorted(window.held) == [3, 8]
