from pathlib import Path

from chaos.checker import Violation
from chaos.namespaces import Namespaces
from chaos.network import Loopback
from chaos.proxies import Proxies
from chaos.runner import Options, Result, choose_network, table
from chaos.scenarios import SCENARIOS


def test_table_tells_what_came_of_all_when_some_are_bad() -> None:
    good = Result("kill-master", 1, rounds=3, failovers_ms=[900.0, 1_100.0, 1_500.0])
    bad = Result("kill-all", 1, rounds=1, violations=[Violation("lost", "7")])
    failed = Result("power", 1, failure="Traceback\nTimeoutError")
    absent = Result("no-room", 1, obstacle="no mounts")
    lines = [line.split() for line in table([good, bad, failed, absent]).splitlines()]
    assert lines[1] == ["kill-master", "3", "0", "0", "0", "1100", "ms", "1500", "ms"]
    assert lines[2] == ["kill-all", "1", "0", "0", "1", "-", "-"]
    assert lines[3][4] == "FAILED"
    assert lines[4][4:6] == ["not", "here"]
    assert [one.is_good for one in (good, bad, failed)] == [True, False, False]
    assert bad.report().splitlines()[-1].strip() == "7"


def test_network_is_one_that_can_cut_when_the_scenario_needs_it(tmp_path: Path) -> None:
    assert isinstance(choose_network(SCENARIOS["kill-all"], Options(tmp_path)), Loopback)
    chosen = choose_network(SCENARIOS["master-alone"], Options(tmp_path))
    assert isinstance(chosen, Proxies | Namespaces)
    wish = Options(tmp_path, network="proxies")
    assert isinstance(choose_network(SCENARIOS["kill-all"], wish), Proxies)
