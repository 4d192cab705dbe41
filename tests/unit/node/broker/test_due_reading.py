from node.broker.due_reading import HORIZONS_S, DueReading
from tests.support.fake_engine import FakeEngine


async def test_counts_are_of_all_that_is_due_by_then() -> None:
    engine = FakeEngine(clock_ms=1_800_000_000_700)
    found = await DueReading(engine.describe_wheel, engine.now_ms).read()
    (bounds,) = engine.asked("describe_wheel")
    assert bounds == [1_800_000_000_000 + one * 1_000 for one in HORIZONS_S]
    assert [one.within_seconds for one in found] == [*map(str, HORIZONS_S), "+Inf"]
    assert [one.messages for one in found[:4]] == [7, 7 + 1, 7 + 1 + 2, 7 + 1 + 2 + 3]
    assert found[-1].messages == found[-2].messages + 8
