"""The in-sync set: what may be in force counts, whatever is lost on the way."""

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from replication.rules.isr import InSyncReplicas, IsrChange

NODES = ("a", "b", "c", "d")
_some = st.frozensets(st.sampled_from(NODES[1:]))


class IsrMachine(RuleBasedStateMachine):
    """A master's idea beside the control plane's truth; messages are late, lost or repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.truth, self.version = frozenset("abc"), 5
        self.isr = InSyncReplicas(1, self.truth, self.version, 2)
        self.requests: list[IsrChange] = []
        self.carried_out: dict[IsrChange, bool] = {}
        self.answers: list[IsrChange] = []
        self.states: list[tuple[frozenset[str], int]] = []
        self.ends = dict.fromkeys(NODES, 0)

    @rule(lost=_some, caught_up=_some)
    def plan(self, lost: frozenset[str], caught_up: frozenset[str]) -> None:
        members = self.isr.members
        change = self.isr.plan(lost & members, caught_up - members - lost)
        if change is not None:
            assert change.version == self.isr.version
            assert set(change.members) != members
            assert len(change.members) >= min(2, len(members))
            self.requests.append(change)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def carry_out(self, data: st.DataObject) -> None:
        """A request arrives, maybe not for the first time, maybe late."""
        change = data.draw(st.sampled_from(self.requests))
        if change not in self.carried_out:
            is_done = change.version == self.version
            self.carried_out[change] = is_done
            if is_done:
                self.truth, self.version = frozenset(change.members), self.version + 1
        self.answers.append(change)

    @rule(node=st.sampled_from(NODES[1:]))
    def change_otherwise(self, node: str) -> None:
        """A node registers: its log was not sound."""
        if len(self.truth - {node}) >= 1:
            self.truth, self.version = self.truth - {node}, self.version + 1

    @rule()
    def tell(self) -> None:
        self.states.append((self.truth, self.version))

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def hear_state(self, data: st.DataObject) -> None:
        self.isr.on_state(*data.draw(st.sampled_from(self.states)))

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def hear_answer(self, data: st.DataObject) -> None:
        change = data.draw(st.sampled_from(self.answers))
        if not self.carried_out[change]:
            self.isr.on_refused(change)

    @rule(node=st.sampled_from(NODES), by=st.integers(1, 100))
    def acknowledge(self, node: str, by: int) -> None:
        self.ends[node] += by

    @invariant()
    def every_set_that_may_be_in_force_counts(self) -> None:
        """But for members that left since, by no word of the master."""
        if self.isr.version == self.version:
            assert self.truth <= self.isr.union
        high_watermark = self.isr.high_watermark(self.ends)
        assert all(high_watermark <= self.ends[node] for node in self.truth)
        assert high_watermark == 0 or sum(end >= high_watermark for end in self.ends.values()) >= 2


TestIsr = IsrMachine.TestCase


def make(members: str = "abc", min_in_sync: int = 2) -> InSyncReplicas:
    return InSyncReplicas(1, frozenset(members), 5, min_in_sync)


def names(text: str) -> frozenset[str]:
    return frozenset(text)


def hear(isr: InSyncReplicas, *calls: Callable[[InSyncReplicas], object]) -> str:
    for call in calls:
        call(isr)
    return "".join(sorted(isr.union))


def test_one_change_is_under_way_at_a_time() -> None:
    isr = make()
    change = isr.plan(names("c"), names(""))
    assert change is not None
    assert isr.plan(names("b"), names("d")) is None
    isr.on_state(names("abc"), 5)  # read before the change arrived: it may still come
    assert isr.plan(names("b"), names("d")) is None
    isr.on_refused(change)
    assert isr.plan(names("b"), names("")) is not None


def test_set_never_shrinks_below_the_minimum_but_grows() -> None:
    isr = make("ab")
    assert isr.plan(names("b"), names("")) is None
    assert isr.plan(names("b"), names("c")) == IsrChange(1, 5, ("a", "c"))
    isr = InSyncReplicas(1, names("ab"), 5, 3)
    assert isr.plan(names("b"), names("c")) == IsrChange(1, 5, ("a", "b", "c"))


def test_I7_nothing_is_committed_when_the_set_is_smaller_than_the_minimum() -> None:  # noqa: N802
    """A member lost its disk and left as it registered."""
    isr = make("a")
    assert isr.high_watermark({"a": 9}) == 0
    assert isr.plan(names(""), names("b")) is not None
    assert isr.high_watermark({"a": 9, "b": 7}) == 7


def test_I7_next_change_stays_asked_for_when_the_former_ones_refusal_comes_late() -> None:  # noqa: N802
    isr = make("ab")
    former = isr.plan(names(""), names("c"))
    isr.on_state(names("ab"), 6)  # something else was faster
    assert isr.plan(names(""), names("c")) == IsrChange(1, 6, ("a", "b", "c"))
    isr.on_refused(former)
    assert hear(isr) == "abc"


def test_I7_nothing_is_committed_any_more_when_the_minimum_was_raised_above_the_set() -> None:  # noqa: N802
    isr = make("a", min_in_sync=1)
    assert isr.high_watermark({"a": 9}) == 9
    isr.min_in_sync = 2
    assert isr.high_watermark({"a": 9}) == 0
