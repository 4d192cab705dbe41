"""Redis: a sorted set of ids by due time, a hash of bodies, and a script that pops what is due."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import redis

from node.tools.local_cluster.nodes import find_free_ports
from tests.bench.peers.peer import POLL_S, TAKE_MAX, Ids, Peer, ServerProcess

_DUE: Final = "due"
_BODIES: Final = "bodies"
_DURABLE: Final = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")
_POP: Final = """
local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000))
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
if #ids == 0 then return ids end
local bodies = redis.call('HMGET', KEYS[2], unpack(ids))
redis.call('ZREM', KEYS[1], unpack(ids))
redis.call('HDEL', KEYS[2], unpack(ids))
return bodies
"""


class Redis(Peer):
    """One server, with an append-only file."""

    name = "redis"
    durability = "appendfsync always: fsync before the answer"

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._server: ServerProcess | None = None
        self._client: Any = None
        self._pop: Any = None
        self._last_id = 0

    def start(self, folder: Path) -> None:
        port = find_free_ports(1)
        self._server = ServerProcess(
            [
                "redis-server",
                "--port",
                str(port),
                "--bind",
                "127.0.0.1",
                "--dir",
                folder,
                *_DURABLE,
            ],
            folder / "redis.log",
        )
        self._client = redis.Redis(port=port, socket_timeout=120)
        self._server.until_ready(self._client.ping, redis.ConnectionError)
        self._pop = self._client.register_script(_POP)

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._server is not None:
            self._server.stop()

    def publish(self, due_ms: Sequence[int], bodies: Sequence[bytes]) -> Ids:
        ids = [b"%d" % one for one in range(self._last_id + 1, self._last_id + 1 + len(bodies))]
        self._last_id += len(bodies)
        call = self._client.pipeline(transaction=True)
        call.execute_command("ZADD", _DUE, *_interleave(due_ms, ids))
        call.execute_command("HSET", _BODIES, *_interleave(ids, bodies))
        call.execute()
        return ids

    def receive(self, until_s: float) -> Iterator[tuple[float, Sequence[bytes]]]:
        while time.time() < until_s:
            if bodies := self._pop(keys=[_DUE, _BODIES], args=[TAKE_MAX]):
                yield time.time(), bodies
            else:
                time.sleep(POLL_S)

    def cancel(self, ids: Ids) -> int:
        call = self._client.pipeline(transaction=True)
        call.execute_command("ZREM", _DUE, *ids)
        call.execute_command("HDEL", _BODIES, *ids)
        removed: int = call.execute()[0]
        return removed


def version() -> str:
    """Of the server; raises OSError where there is none."""
    said = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True)
    return "Redis " + said.stdout.split("v=")[1].split()[0]


def _interleave(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    return [one for pair in zip(first, second, strict=True) for one in pair]


PEERS: Final = (Redis,)
