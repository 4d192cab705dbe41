from chaos.scenarios import SCENARIOS, SHORT


def test_short_mix_is_of_scenarios_that_there_are() -> None:
    assert set(SHORT) <= set(SCENARIOS)


def test_scenarios_say_what_they_are() -> None:
    for name, one in SCENARIOS.items():
        assert one.name == name
        assert one.what
        assert one.rounds
        assert one.play.__doc__
