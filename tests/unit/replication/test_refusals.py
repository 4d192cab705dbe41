"""However often strangers are refused, and for whatever they say: few reasons, and few lines."""

from replication.refusals import LINES_MAX, OTHER, REASONS_MAX, WINDOW_S, Refusals


class World:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.lines: list[tuple[str, str, int]] = []
        self.refusals = Refusals(lambda: self.now_s, lambda *line: self.lines.append(line))


def test_reasons_are_few_whatever_strangers_say() -> None:
    refusals = World().refusals
    for number in range(1_000):
        refusals.note(f"a frame of {number} bytes")
    refusals.note("a frame of 3 bytes")
    refusals.note("x" * 100_000)
    assert len(refusals.counts) == REASONS_MAX + 1
    assert refusals.counts["a frame of 3 bytes"] == 2
    assert refusals.counts[OTHER] == 1_000 - REASONS_MAX + 1
    assert max(map(len, refusals.counts)) < 300


def test_lines_are_few_and_say_how_many_have_none() -> None:
    world = World()
    for _ in range(LINES_MAX + 90):
        world.refusals.note("no proof", "it:1")
    assert world.lines == [("no proof", "it:1", 0)] * LINES_MAX
    world.now_s += WINDOW_S
    world.refusals.note("x" * 100_000)
    world.refusals.note("again")
    (long, _, unlogged), again = world.lines[LINES_MAX:]
    assert unlogged == 90
    assert len(long) < 300
    assert again == ("again", "", 0)
