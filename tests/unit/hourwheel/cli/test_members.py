"""Growth asks again for what passes, ends at what does not, and knows what is done."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from hourwheel import errors
from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.members import grow
from hourwheel.client.admin import AsyncAdmin
from hourwheel.client.members import Member, Members
from tests.unit.hourwheel.cli.conftest import Cli

COMING = {"b": "h:2", "c": "h:3"}


@dataclass
class Asked:
    """A cluster whose answers are given, and then what it has become."""

    found: Members
    troubles: list[errors.HourwheelError] = field(default_factory=list)
    """What the next changes end with."""
    is_done_all_the_same: bool = False
    behind: int = 1
    """Looks until all are in sync."""
    changes: list[tuple[dict[str, str], int | None]] = field(default_factory=list)

    async def members(self) -> Members:
        if self.changes and self.behind:
            self.behind -= 1
            return self.found
        synced = tuple(replace(one, is_in_sync=True) for one in self.found.members)
        return replace(self.found, members=synced)

    async def change_members(
        self,
        add: Mapping[str, str],
        remove: Iterable[str] = (),
        *,
        expected_generation: int | None = None,
    ) -> int:
        assert not list(remove)
        self.changes.append((dict(add), expected_generation))
        trouble = self.troubles.pop(0) if self.troubles else None
        if trouble is None or self.is_done_all_the_same:
            names = [one.node_id for one in self.found.members]
            self.found = members(self.found.generation + 1, *names, *add, in_sync=names)
        if trouble is not None:
            raise trouble
        return self.found.generation


def members(
    generation: int, *names: str, in_sync: Iterable[str] | None = None, former: tuple[str, ...] = ()
) -> Members:
    known = {"a": "h:1", **COMING}
    has = set(names if in_sync is None else in_sync)
    found = tuple(Member(one, known[one], True, True, one in has) for one in sorted(names))
    return Members(generation, found, former, is_changing=False, cluster_id="")


async def growing(asked: Asked, say: Callable[[str], None] = lambda _: None) -> Members:
    return await grow(cast("AsyncAdmin", asked), COMING, 20.0, say)


async def test_members_are_added_and_waited_for() -> None:
    asked, said = Asked(members(1, "a")), list[str]()
    found = await growing(asked, said.append)
    assert [one.node_id for one in found.members] == ["a", "b", "c"]
    assert asked.changes == [(COMING, 1)]
    assert said == ["copies are moving", "node b is not in sync yet"]
    assert await growing(asked) == found, "again: it is done"
    assert len(asked.changes) == 1


async def test_who_is_a_member_already_is_not_added_again() -> None:
    asked = Asked(members(7, "a", "b"))
    await growing(asked)
    assert asked.changes == [({"c": "h:3"}, 7)]


@pytest.mark.parametrize(
    "trouble",
    [
        errors.FailedPrecondition("no process listens at h:2", node="b"),
        errors.FailedPrecondition("it would lose the majority", alive=1),
        errors.FailedPrecondition("generation 2 is in force", generation=2),
        errors.Unavailable("it starts again"),
    ],
)
async def test_what_passes_is_waited_for(trouble: errors.HourwheelError) -> None:
    asked, said = Asked(members(1, "a"), [trouble]), list[str]()
    await growing(asked, said.append)
    assert len(asked.changes) == 2
    assert said[0] == trouble.message


async def test_change_of_which_nobody_knows_is_looked_for() -> None:
    asked = Asked(members(1, "a"), [errors.Timeout("nobody knows")], is_done_all_the_same=True)
    found = await growing(asked)
    assert (len(asked.changes), found.generation) == (1, 2)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Asked(members(1, "a", former=("b",))), "was used before"),
        (Asked(members(1, "a"), [errors.FailedPrecondition("more than 5 members")]), "more than"),
        (Asked(members(1, "a"), [errors.FailedPrecondition("too few copies")]), "too few"),
    ],
)
async def test_what_does_not_pass_is_said(asked: Asked, said: str) -> None:
    with pytest.raises(errors.FailedPrecondition, match=said):
        await growing(asked)


async def test_member_at_another_address_is_refused() -> None:
    asked = Asked(members(1, "a", "b"))
    with pytest.raises(errors.FailedPrecondition, match="is a member at h:2"):
        await grow(cast("AsyncAdmin", asked), {"b": "h:9"}, 20.0, lambda _: None)


async def test_time_that_ends_says_what_was_waited_for() -> None:
    nobody = errors.FailedPrecondition("no process listens at h:2", node="b")
    asked = Asked(members(1, "a"), [nobody] * 100)
    with pytest.raises(errors.Timeout, match=r"no process listens at h:2\. Run it again"):
        await grow(cast("AsyncAdmin", asked), COMING, 0.01, lambda _: None)


async def test_first_node_that_has_just_begun_may_not_know_it_yet() -> None:
    asked = Asked(members(1, "a"), [errors.FailedPrecondition("the members are not known yet")])
    await grow(cast("AsyncAdmin", asked), COMING, 20.0, lambda _: None, is_first_new=True)
    assert len(asked.changes) == 2


@pytest.mark.parametrize(
    "arguments", [("b",), ("b=h:2", "b=h:3"), ("b=h:2", "--restart", "true"), ()]
)
def test_wrong_arguments(cli: Cli, arguments: tuple[str, ...]) -> None:
    assert cli("members", "grow", *arguments).exit_code == ExitCode.USAGE
