import asyncio

from chaos.proxies import Proxies


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1_000):
        writer.write(data)
    writer.close()


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


async def test_bytes_wait_when_their_way_is_cut_and_arrive_when_it_is_mended() -> None:
    async with Proxies(("n1", "n2")) as network:
        listens = port_of(network.listens("n2").data)
        server = await asyncio.start_server(echo, "127.0.0.1", listens)
        seen = network.seen_from("n1", "n2")
        assert seen.api == network.listens("n2").api
        assert seen.data != network.listens("n2").data
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(seen.data))
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        for link in (("n1", "n2"), ("n2", "n1")):
            await network.cut([link])
            writer.write(b"two")
            answer = asyncio.ensure_future(reader.readexactly(3))
            probe_reader, probe = await asyncio.open_connection("127.0.0.1", listens)
            probe.write(b"x")  # a full round past the proxy: the answer would be here by now
            assert await probe_reader.readexactly(1) == b"x"
            assert not answer.done()
            probe.close()
            await network.mend([link])
            assert await answer == b"two"
        writer.close()
        server.close()


async def test_end_of_a_connection_is_told_when_nothing_is_cut() -> None:
    async with Proxies(("n1", "n2")) as network:
        listens = port_of(network.listens("n2").control)
        server = await asyncio.start_server(echo, "127.0.0.1", listens)
        seen = port_of(network.seen_from("n1", "n2").control)
        reader, writer = await asyncio.open_connection("127.0.0.1", seen)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        server.close()
