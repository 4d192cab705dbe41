"""Room for answers that nobody has read yet."""

from node.contracts.answer_budget import AnswerBudget, AnswerPart, HeldAnswer


def test_has_room_until_the_smallest_answer_would_not_fit() -> None:
    budget = AnswerBudget(100, answer_bytes_min=40)
    budget.take(60)
    assert (budget.has_room, budget.room_bytes) == (True, 40)
    budget.take(1)
    assert (budget.has_room, budget.room_bytes) == (False, 39)


def test_has_room_for_one_answer_when_it_is_larger_than_all_room() -> None:
    budget = AnswerBudget(10, answer_bytes_min=40)
    assert budget.has_room
    budget.take(30)
    assert (budget.has_room, budget.room_bytes) == (False, 0)


def test_has_room_for_a_size_or_for_one_answer_of_any() -> None:
    budget = AnswerBudget(100, answer_bytes_min=40)
    assert budget.has_room_for(1_000)
    budget.take(30)
    assert (budget.has_room_for(70), budget.has_room_for(71)) == (True, False)


def test_half_of_the_room_at_most_is_for_what_messages_take_beside_their_bytes() -> None:
    budget = AnswerBudget(1_000)
    assert budget.share(16_384, 10) == (50, 500)
    assert budget.share(3, 10) == (3, 970)
    assert budget.share(16_384, 0) == (16_384, 1_000)
    budget.take(995)
    assert budget.share(16_384, 10) == (1, 0)


def test_watchers_are_called_when_something_is_let_go_and_there_is_room() -> None:
    budget, calls = AnswerBudget(100, answer_bytes_min=40), list[tuple[str, int]]()
    for name in "ab":
        budget.watch(lambda name=name: calls.append((name, budget.held_bytes)))
    budget.take(80)
    budget.let_go(10)
    assert calls == []
    budget.let_go(10)
    budget.let_go(60)
    assert calls == [("a", 60), ("b", 60), ("a", 0), ("b", 0)]


def test_watcher_is_not_called_any_more_when_it_says_so() -> None:
    budget, calls = AnswerBudget(100, answer_bytes_min=40), list[int]()

    def note() -> None:
        calls.append(budget.held_bytes)

    budget.watch(note)
    budget.unwatch(note)
    budget.unwatch(note)
    budget.take(80)
    budget.let_go(80)
    assert calls == []


def test_call_holds_more_or_less_than_before() -> None:
    budget = AnswerBudget(100)
    held = HeldAnswer(budget)
    sizes_bytes = []
    for size_bytes in (30, 50, 50, 10):
        held.hold(size_bytes)
        sizes_bytes.append(budget.held_bytes)
    assert sizes_bytes == [30, 50, 50, 10]
    held.end()
    held.hold(20)
    assert budget.held_bytes == 0


def test_call_holds_until_its_end_and_nothing_behind_it() -> None:
    budget = AnswerBudget(100)
    held = HeldAnswer(budget)
    held.take(30)
    assert budget.held_bytes == 30
    held.end()
    held.take(30)
    held.end()
    assert budget.held_bytes == 0


def test_part_counts_in_the_whole_and_leaves_the_rest_to_others() -> None:
    whole = AnswerBudget(100, answer_bytes_min=40)
    part = AnswerPart(whole, 30)
    one, other = HeldAnswer(part), HeldAnswer(whole)
    one.take(20)
    assert (part.has_room_for(10), part.has_room_for(11)) == (True, False)
    other.take(75)
    assert (whole.held_bytes, part.has_room_for(5), part.has_room_for(6)) == (95, True, False)
    one.end()
    assert (whole.held_bytes, part.held_bytes) == (75, 0)
    assert (part.has_room_for(25), part.has_room_for(26)) == (True, False)
    other.end()
    assert part.has_room_for(1_000), "alone"
