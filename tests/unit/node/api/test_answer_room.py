"""Who waits for room for an answer that is passed on."""

import asyncio

from node.api.forwarder import AnswerRoom
from node.contracts.answer_budget import AnswerBudget, HeldAnswer
from tests.support.engine_world import let_others_run, within


class World:
    """Room for 100 bytes, and answers that wait for some."""

    def __init__(self) -> None:
        self.budget = AnswerBudget(100, answer_bytes_min=1)
        self.room = AnswerRoom(self.budget)

    def ask(self, size_bytes: int) -> tuple[HeldAnswer, "asyncio.Task[None]"]:
        held = HeldAnswer(self.budget)
        return held, asyncio.ensure_future(self.room.take(held, size_bytes))


async def test_answer_has_room_at_once_when_there_is_some() -> None:
    world = World()
    _, asked = world.ask(60)
    await within(asked)
    assert world.budget.held_bytes == 60


async def test_answers_get_room_in_the_order_in_which_they_came() -> None:
    """A small one does not overtake a large one, which would wait for ever."""
    world = World()
    first, asked = world.ask(60)
    await within(asked)
    second, large = world.ask(90)
    _, small = world.ask(10)
    await let_others_run()
    assert (large.done(), small.done()) == (False, False)
    first.end()
    await within(asyncio.gather(large, small))
    assert world.budget.held_bytes == 100
    second.end()
    assert world.budget.held_bytes == 10


async def test_next_one_has_its_turn_when_the_first_is_given_up() -> None:
    world = World()
    _, asked = world.ask(60)
    await within(asked)
    _, large = world.ask(90)
    _, small = world.ask(10)
    await let_others_run()
    large.cancel()
    await within(small)
    assert world.budget.held_bytes == 70


async def test_room_goes_to_the_next_one_when_the_call_is_over_that_waited() -> None:
    world = World()
    first, asked = world.ask(60)
    await within(asked)
    gone, large = world.ask(90)
    _, small = world.ask(50)
    await let_others_run()
    gone.end()
    first.end()
    await within(asyncio.gather(large, small))
    assert world.budget.held_bytes == 50


async def test_answer_that_is_larger_than_all_room_is_alone() -> None:
    world = World()
    first, asked = world.ask(1_000)
    await within(asked)
    _, other = world.ask(1)
    await let_others_run()
    assert not other.done()
    first.hold(30)
    await within(other)
    assert world.budget.held_bytes == 31
