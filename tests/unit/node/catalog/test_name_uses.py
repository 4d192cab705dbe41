import pytest

from node.catalog.name_uses import NameUses


def test_it_is_in_use_until_its_last_call_ends() -> None:
    uses = NameUses()
    uses.begin(1_000)
    assert uses.last_ms(7) == 1_000, "a new master knows nothing of what was before"
    with uses.using(7, lambda: 5_000):
        with uses.using(7, lambda: 4_000):
            assert uses.last_ms(7) is None
        assert uses.last_ms(7) is None
        assert not uses.is_idle(7, 10_000)
    assert uses.last_ms(7) == 5_000
    assert uses.is_idle(7, 5_000)
    assert not uses.is_idle(7, 4_999)
    assert uses.last_ms(8) == 1_000


def test_a_call_that_fails_is_a_use() -> None:
    uses = NameUses()
    with pytest.raises(KeyError), uses.using(7, lambda: 5_000):
        raise KeyError
    assert uses.last_ms(7) == 5_000


def test_what_is_not_seen_is_forgotten() -> None:
    uses = NameUses()
    for number in (7, 8):
        with uses.using(number, lambda: 5_000):
            pass
    uses.turn_over()
    uses.saw(7)
    with uses.using(9, lambda: 6_000):
        pass
    uses.turn_over()
    assert [uses.last_ms(number) for number in (7, 8, 9)] == [5_000, 0, 6_000]


def test_a_new_reign_forgets_all_but_what_is_under_way() -> None:
    uses = NameUses()
    with uses.using(8, lambda: 7_000):
        with uses.using(7, lambda: 5_000):
            pass
        uses.begin(6_000)
        assert uses.last_ms(7) == 6_000
        assert uses.last_ms(8) is None
    assert uses.last_ms(8) == 7_000
