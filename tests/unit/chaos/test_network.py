import pytest

from chaos.network import Loopback, Places, free_ports


def test_ports_differ_when_several_are_chosen() -> None:
    assert len({*free_ports(20), *free_ports(20)}) == 40


def test_ports_are_below_those_of_outgoing_connections() -> None:
    assert all(12_000 <= port < 20_000 for port in free_ports(200))


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
