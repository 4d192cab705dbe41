import random

from chaos.message_mix import FAR_MS, Mix, choose_delay, make_message


def test_delays_are_within_bounds_when_the_seed_chooses() -> None:
    chooser, mix = random.Random(1), Mix()
    for _ in range(2_000):
        delay_ms, is_far = choose_delay(chooser, mix, with_far=True)
        assert (delay_ms >= FAR_MS) == is_far
        assert is_far or 0 <= delay_ms <= 2 * mix.delay_ms_max
    assert not any(choose_delay(chooser, mix, with_far=False)[1] for _ in range(500))


def test_message_is_due_as_asked_when_it_is_made() -> None:
    chooser = random.Random(1)
    assert make_message(b"x", 5, chooser, is_delay=True).delay_ms == 5
    assert make_message(b"x", 5, chooser, is_delay=False).due_ms == 5
