"""Room for answers that nobody has read yet."""

from node.contracts.answer_budget import AnswerBudget, HeldAnswer


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


def test_on_room_is_called_once_when_there_is_room_again() -> None:
    budget, calls = AnswerBudget(100, answer_bytes_min=40), list[int]()
    budget.on_room = lambda: calls.append(budget.held_bytes)
    for size_bytes in (60, 10, 10):
        budget.take(size_bytes)
    budget.let_go(10)
    assert calls == []
    budget.let_go(10)
    budget.let_go(60)
    assert calls == [60]


def test_call_holds_until_its_end_and_nothing_behind_it() -> None:
    budget = AnswerBudget(100)
    held = HeldAnswer(budget)
    held.take(30)
    assert budget.held_bytes == 30
    held.end()
    held.take(30)
    held.end()
    assert budget.held_bytes == 0
