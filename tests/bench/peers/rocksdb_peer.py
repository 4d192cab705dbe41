"""RocksDB in the client's own process, by (due time, id), as DDMQ's Chronos keeps its messages.

No server, no network, no second process: what a broker could reach at the very best.
"""

import struct
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, Final

from rocksdict import Options, Rdict, ReadOptions, WriteBatch, WriteOptions

from tests.bench.peers.peer import POLL_S, TAKE_MAX, Ids, Peer

_KEY: Final = struct.Struct(">QQ")


class RocksDB(Peer):
    """A database in this process."""

    name = "rocksdb, in process"
    durability = "fsync of the WAL before a write returns"

    def __init__(self) -> None:
        """Nothing is open yet."""
        self._database: Any = None
        self._write = WriteOptions()
        self._write.sync = True
        self._last_id = 0
        self._from = _KEY.pack(0, 0)
        """Nothing lies before it: what was taken leaves marks that a scan would have to pass."""

    def start(self, folder: Path) -> None:
        self._database = Rdict(str(folder / "database"), Options(raw_mode=True))

    def stop(self) -> None:
        if self._database is not None:
            self._database.close()

    def publish(self, due_ms: Sequence[int], bodies: Sequence[bytes]) -> Ids:
        ids = [
            _KEY.pack(due, self._last_id + ordinal) for ordinal, due in enumerate(due_ms, start=1)
        ]
        self._last_id += len(ids)
        batch = WriteBatch(raw_mode=True)
        for key, body in zip(ids, bodies, strict=True):
            batch.put(key, body)
        self._database.write(batch, self._write)
        return ids

    def receive(self, until_s: float) -> Iterator[tuple[float, Sequence[bytes]]]:
        while (now_s := time.time()) < until_s:
            keys, bodies = self._find_due(_KEY.pack(int(now_s * 1_000) + 1, 0))
            if not keys:
                time.sleep(POLL_S)
                continue
            self._delete(keys)
            self._from = keys[-1]
            yield time.time(), bodies

    def _find_due(self, end: bytes) -> tuple[list[bytes], list[bytes]]:
        keys: list[bytes] = []
        bodies: list[bytes] = []
        found = self._database.iter(ReadOptions())
        found.seek(self._from)
        while found.valid() and len(keys) < TAKE_MAX and (key := found.key()) < end:
            keys.append(key)
            bodies.append(found.value())
            found.next()
        return keys, bodies

    def cancel(self, ids: Ids) -> int:
        there = [
            key
            for key, body in zip(ids, self._database.get(list(ids)), strict=True)
            if body is not None
        ]
        self._delete(there)
        return len(there)

    def _delete(self, keys: Sequence[bytes]) -> None:
        batch = WriteBatch(raw_mode=True)
        for key in keys:
            batch.delete(key)
        self._database.write(batch, self._write)


def version() -> str:
    """Of the binding, which carries the library."""
    return "rocksdict " + version_of("rocksdict")


PEERS: Final = (RocksDB,)
