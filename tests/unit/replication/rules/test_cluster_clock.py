"""The cluster clock: the lower median of a majority's clocks."""

from hypothesis import given
from hypothesis import strategies as st

from replication.rules.cluster_clock import ClockConfig, ClusterClock

CONFIG = ClockConfig(fresh_ms=2_000, jump_ms=1_000, settle_ms=500)
MEMBERS = ["a", "b", "c"]


def make(members: list[str] | None = None) -> ClusterClock:
    return ClusterClock(CONFIG, members or MEMBERS, "a")


def tell(clock: ClusterClock, node: str, offset_ms: float, at_ms: float = 0.0) -> None:
    """`node` says that its clock is so far ahead of ours, without any delay."""
    clock.on_answer(node, at_ms, at_ms, 5_000 + at_ms, 5_000 + at_ms + offset_ms)


def test_clock_is_the_own_when_the_node_is_alone() -> None:
    assert make(["a"]).update(0) == 0


def test_clock_is_unknown_when_there_is_no_majority() -> None:
    clock = make()
    assert clock.update(0) is None
    tell(clock, "z", 5)
    assert clock.update(0) is None


def test_clock_is_the_middle_one_of_three() -> None:
    clock = make()
    tell(clock, "b", 30)
    tell(clock, "c", 10)
    assert clock.update(0) == 10


def test_I2_clock_is_the_one_behind_of_two() -> None:  # noqa: N802
    for offset, expected in ((30.0, 0.0), (-30.0, -30.0)):
        clock = make()
        tell(clock, "b", offset)
        assert clock.update(0) == expected


def test_clock_is_unknown_again_when_samples_are_old() -> None:
    clock = make()
    tell(clock, "b", -30)
    assert clock.update(2_000) == -30
    assert clock.update(2_001) is None


def test_sample_of_the_shortest_round_trip_counts() -> None:
    clock = make()
    clock.on_answer("b", 0, 100, 5_100, 5_100 - 7)  # read it at the end of a slow round trip
    clock.on_answer("b", 200, 202, 5_202, 5_201 - 40)
    assert clock.offsets(202) == {"b": -39}, "the least that a round trip of 2 ms allows"
    assert clock.update(202) == -39


def test_clock_counts_as_the_own_when_the_network_may_explain_the_difference() -> None:
    for clock_ms in (5_000.0, 5_004.0, 5_010.0):
        clock = make()
        clock.on_answer("b", 0, 10, 5_010, clock_ms)
        assert clock.update(10) == 0


def test_answer_is_ignored_when_it_comes_before_its_question() -> None:
    clock = make()
    clock.on_answer("b", 10, 9, 5_000, 4_000)
    assert clock.update(10) is None


def test_jump_is_believed_when_it_is_seen_again_later() -> None:
    clock = make()
    tell(clock, "b", -10)
    tell(clock, "c", -10)
    assert clock.update(0) == -10
    for at_ms in range(2_100, 2_700, 100):
        tell(clock, "b", -5_000, at_ms)
        tell(clock, "c", -5_000, at_ms)
        is_settled = at_ms - 2_100 >= 500
        assert clock.update(at_ms) == (-5_000 if is_settled else None)


def test_jump_is_forgotten_when_it_is_over() -> None:
    clock = make()
    tell(clock, "b", -10)
    assert clock.update(0) == -10
    clock.on_answer("b", 2_100, 2_100, 7_100, 2_100)
    assert clock.update(2_100) is None
    tell(clock, "c", -11, 2_200)
    assert clock.update(2_200) == -11


@given(
    st.lists(
        st.tuples(st.sampled_from("bc"), st.floats(0, 20), st.floats(0, 20), st.floats(-5, 5)),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from("abc-"),
    st.floats(-4e6, 4e6),
)
def test_I2_clock_is_ahead_by_a_round_trip_at_most_when_one_clock_is_wrong(  # noqa: N802
    answers: list[tuple[str, float, float, float]], liar: str, by_ms: float
) -> None:
    """Right clocks err by 5 ms at most; answers are (node, way there, way back, error)."""
    clock = make()
    own_error = by_ms if liar == "a" else 0.0
    at_ms = longest_ms = 0.0
    for node, there, back, error_ms in answers:
        node_error = by_ms if liar == node else error_ms
        heard = at_ms + there
        received = heard + back
        clock.on_answer(node, at_ms, received, received + own_error, heard + node_error)
        longest_ms = max(longest_ms, received - at_ms)
        at_ms = received
        offset_ms = clock.update(at_ms)
        if offset_ms is not None:
            assert own_error + offset_ms <= 5 + longest_ms + 1e-3


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["answer", "look"]),
            st.sampled_from([0, 1, 90, 700, 1_999]),
            st.integers(0, 5),
            st.integers(-9, 9),
        ),
        max_size=80,
    )
)
def test_offset_is_that_of_the_shortest_of_the_last_fresh_round_trips(
    steps: list[tuple[str, int, int, int]],
) -> None:
    clock, samples, now_ms = make(), list[tuple[float, float, float]](), 10.0
    for what, later_ms, round_trip_ms, offset_ms in steps:
        now_ms += later_ms
        if what == "answer":
            read_ms = now_ms - round_trip_ms / 2 + offset_ms
            clock.on_answer("b", now_ms - round_trip_ms, now_ms, now_ms, read_ms)
            samples.append((round_trip_ms, now_ms, offset_ms))
            continue
        fresh = [one for one in samples[-16:] if now_ms - one[1] <= CONFIG.fresh_ms]
        if not fresh:
            assert clock.offsets(now_ms) == {}
            continue
        error_ms, _, offset = min(fresh, key=lambda one: one[0])
        least_ms = min(max(0.0, offset - error_ms / 2), offset + error_ms / 2)
        assert clock.offsets(now_ms) == {"b": least_ms}
