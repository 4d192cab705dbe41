import asyncio
import subprocess
from pathlib import Path

from chaos.namespaces import Namespaces, can_make_namespaces
from tests.support.reaper import say

CONNECT = """
import socket, sys
one = socket.socket()
one.settimeout(0.5)
try:
    one.connect((sys.argv[1], 9))
except OSError as error:
    print(type(error).__name__)
"""


async def met(network: Namespaces, node: str, peer: str) -> str:
    """How an attempt to connect to a port that nobody listens on ends."""
    address = network.listens(peer).api.rpartition(":")[0]
    command = [*network.prefix(node), "python3", "-c", CONNECT, address]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    return str(ran.stdout.strip())


def test_addresses_are_in_one_net_when_nothing_is_made_yet() -> None:
    network = Namespaces(("n1", "n2"), number=7)
    assert network.listens("n1").api.startswith("10.211.7.11:")
    assert network.seen_from("n1", "n2").data.startswith("10.211.7.12:")
    assert "hw7-n1" in network.prefix("n1")


async def test_nobody_answers_when_a_way_is_cut_until_it_is_mended() -> None:
    if not can_make_namespaces():
        say("no namespaces: this machine cannot make them")
        return
    async with Namespaces(("n1", "n2"), number=254) as network:
        assert await met(network, "n1", "n2") == "ConnectionRefusedError"
        await network.cut([("n1", "n2")])
        assert await met(network, "n1", "n2") == "TimeoutError"
        await network.mend([("n1", "n2")])
        assert await met(network, "n1", "n2") == "ConnectionRefusedError"
    left = await asyncio.to_thread(lambda: list(Path("/run/netns").glob("hw254-*")))
    assert left == []
