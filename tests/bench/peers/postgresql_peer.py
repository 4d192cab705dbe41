"""PostgreSQL: one table with an index on the due time, and DELETE ... FOR UPDATE SKIP LOCKED."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psycopg

from node.tools.local_cluster.nodes import find_free_ports
from tests.bench.peers.peer import POLL_S, TAKE_MAX, Ids, Peer, ServerProcess

_ACCOUNT: Final = "postgres"
"""The server refuses to run as root."""
_DEBIAN: Final = Path("/usr/lib/postgresql")
_LOCALE: Final = ("--locale=C", "-E", "UTF8")
_TABLE: Final = (
    "CREATE TABLE message (id bigserial PRIMARY KEY, due_ms bigint NOT NULL, body bytea NOT NULL)"
)
_INDEX: Final = "CREATE INDEX message_due ON message (due_ms)"
_PUBLISH: Final = (
    "INSERT INTO message (due_ms, body) SELECT * FROM unnest(%b::int8[], %b::bytea[]) RETURNING id"
)
_TAKE: Final = f"""
DELETE FROM message WHERE id = ANY(ARRAY(
    SELECT id FROM message WHERE due_ms <= %s ORDER BY due_ms LIMIT {TAKE_MAX}
    FOR UPDATE SKIP LOCKED))
RETURNING body"""
_CANCEL: Final = "DELETE FROM message WHERE id = ANY(%b::int8[])"


class PostgreSQL(Peer):
    """One server with its defaults: fsync and synchronous_commit are on."""

    name = "postgresql"
    durability = "synchronous_commit: the WAL is on the disk before the answer"

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._server: ServerProcess | None = None
        self._connection: Any = None
        self._cursor: Any = None

    def start(self, folder: Path) -> None:
        data, port = folder / "pg", find_free_ports(1)
        as_account: dict[str, Any] = {"cwd": "/"}
        if os.geteuid() == 0:
            shutil.chown(folder, _ACCOUNT, _ACCOUNT)
            as_account |= {"user": _ACCOUNT, "group": _ACCOUNT}
        subprocess.run(
            [_program("initdb"), "-D", data, "-A", "trust", "-U", "bench", *_LOCALE],
            check=True,
            stdout=subprocess.DEVNULL,
            **as_account,
        )
        self._server = ServerProcess(
            [_program("postgres"), "-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", ""],
            folder / "postgres.log",
            **as_account,
        )
        self._connection = self._server.until_ready(
            lambda: psycopg.connect(
                f"host=127.0.0.1 port={port} user=bench dbname=postgres", autocommit=True
            ),
            psycopg.OperationalError,
        )
        self._cursor = self._connection.cursor(binary=True)
        self._cursor.execute(_TABLE)
        self._cursor.execute(_INDEX)

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._server is not None:
            self._server.stop(signal.SIGINT)  # "fast": it does not wait for clients

    def publish(self, due_ms: Sequence[int], bodies: Sequence[bytes]) -> Ids:
        self._cursor.execute(_PUBLISH, (list(due_ms), list(bodies)), prepare=True)
        return [row[0] for row in self._cursor.fetchall()]

    def receive(self, until_s: float) -> Iterator[tuple[float, Sequence[bytes]]]:
        while (now_s := time.time()) < until_s:
            self._cursor.execute(_TAKE, (int(now_s * 1_000),), prepare=True)
            if rows := self._cursor.fetchall():
                yield time.time(), [row[0] for row in rows]
            else:
                time.sleep(POLL_S)

    def cancel(self, ids: Ids) -> int:
        self._cursor.execute(_CANCEL, (list(ids),), prepare=True)
        removed: int = self._cursor.rowcount
        return removed


def version() -> str:
    """Of the server; raises OSError where there is none."""
    said = subprocess.run([_program("postgres"), "-V"], capture_output=True, text=True, check=True)
    return "PostgreSQL " + said.stdout.split()[2]


def _program(name: str) -> str:
    """Debian keeps the server's programs off the path."""
    folders = [str(one / "bin") for one in sorted(_DEBIAN.glob("*"), reverse=True)]
    return shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", "")])) or name


PEERS: Final = (PostgreSQL,)
