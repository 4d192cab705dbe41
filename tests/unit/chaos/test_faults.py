from collections.abc import Iterable
from pathlib import Path

from chaos import faults
from chaos.network import Link, Loopback
from chaos.node_process import NodeProcess

ONE, TWO, THREE = (NodeProcess(name, Path(name), "") for name in ("n1", "n2", "n3"))


class Notes(Loopback):
    """Takes down what is cut."""

    def __init__(self) -> None:
        super().__init__(())
        self.cut_links: list[Link] = []

    async def cut(self, links: Iterable[Link]) -> None:
        self.cut_links += links

    async def mend(self, links: Iterable[Link]) -> None:
        for link in links:
            self.cut_links.remove(link)


def test_links_go_the_ways_that_are_meant() -> None:
    assert faults.outwards(ONE, [TWO, THREE]) == [("n1", "n2"), ("n1", "n3")]
    assert faults.inwards(ONE, [TWO, THREE]) == [("n2", "n1"), ("n3", "n1")]
    assert set(faults.alone(ONE, [TWO])) == {("n1", "n2"), ("n2", "n1")}


async def test_links_are_mended_when_the_fault_ends() -> None:
    network = Notes()
    links = faults.outwards(ONE, [TWO])
    async with faults.cut(network, iter(links)):
        assert network.cut_links == links
    assert network.cut_links == []


async def test_clock_is_right_again_when_the_fault_ends(tmp_path: Path) -> None:
    node = NodeProcess("n1", tmp_path, "")
    assert faults.clock_plan(node) == {"clock_file": str(node.clock_file)}
    async with faults.stepped_clock([node], -3_000.0):
        assert float(node.clock_file.read_text()) == -3_000
    assert not node.clock_file.exists()


def test_plan_says_at_which_call_a_node_dies() -> None:
    plan = faults.crash_plan(("fsync",), 7)
    assert plan == {"calls": ["fsync"], "first": 7, "effect": "kill before"}
