import subprocess
import sys
from pathlib import Path

import pytest

from chaos.network import Loopback, Places, Ports, free_ports

FEW = 11_900, 11_960
TAKES = """
import sys
from pathlib import Path
from chaos.network import Ports
print(*Ports(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])).take(int(sys.argv[4])))
"""


def taken_by_another(file: Path, count: int) -> "subprocess.CompletedProcess[str]":
    words = [str(word) for word in (*FEW, file, count)]
    command = [sys.executable, "-c", TAKES, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_ports_differ_when_several_are_chosen() -> None:
    assert len({*free_ports(20), *free_ports(20)}) == 40


def test_ports_are_below_those_of_outgoing_connections() -> None:
    assert all(12_000 <= port < 20_000 for port in free_ports(200))


def test_another_process_gets_none_of_them_while_this_one_lives(tmp_path: Path) -> None:
    file = tmp_path / "ports"
    own = Ports(*FEW, file).take(25)
    others = [int(word) for word in taken_by_another(file, 25).stdout.split()]
    assert len({*own, *others}) == 50
    assert "no free ports" in taken_by_another(file, 45).stderr


async def test_addresses_differ_and_nothing_can_be_cut_when_all_is_on_loopback() -> None:
    async with Loopback(("n1", "n2")) as network:
        places = [network.listens(node) for node in ("n1", "n2")]
        assert len({address for one in places for address in one}) == 6
        assert network.seen_from("n1", "n2") == network.listens("n2")
        assert network.prefix("n1") == []
        for change in (network.cut, network.mend):
            with pytest.raises(NotImplementedError):
                await change([("n1", "n2")])


def test_places_are_told_as_the_configuration_wants_them() -> None:
    assert Places("a:1", "b:2", "c:3").text == "a:1,b:2,c:3"
