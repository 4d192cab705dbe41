"""Apache RocketMQ: timer messages with the Java client, one name server and one broker.

Maven fetches the jars, once. The client is a warm JVM of its own, steered over a loopback
connection (`rocketmq/Driver.java`); a message is received when RocketMQ calls its listener.
"""

import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from node.tools.local_cluster.nodes import find_free_ports
from tests.bench.peers.peer import Ids, Peer, ServerProcess

_SOURCES: Final = Path(__file__).with_name("rocketmq")
_BUILD: Final = Path(__file__).resolve().parents[3] / "build/rocketmq"
_HEAP: Final = "2g"
_WARM_UP: Final = 60_000
"""Messages before the clock starts: the JIT is still busy after 20,000."""
_WARM_UP_LIST: Final = 500
_WARM_UP_S: Final = 20.0
_PRECISION_MS: Final = 100
"""The finest it takes; 1,000 by default."""
_CONF: Final = """brokerClusterName=bench
brokerName=bench
brokerId=0
brokerRole=ASYNC_MASTER
namesrvAddr={name_server}
listenPort={port}
haListenPort={ha_port}
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
storePathRootDir={store}
flushDiskType=SYNC_FLUSH
timerWheelEnable=true
timerPrecisionMs={precision_ms}
recallMessageEnable=true
autoCreateTopicEnable=false
waitTimeMillsInSendQueue=2000
maxTransferCountOnMessageInMemory=1000
maxTransferBytesOnMessageInMemory=4194304
"""
_OPENS: Final = [
    f"--add-{how}=java.base/{package}=ALL-UNNAMED"
    for how in ("opens", "exports")
    for package in ("java.nio", "sun.nio.ch", "jdk.internal.ref")
]


class RocketMQ(Peer):
    """One broker that flushes before it answers."""

    name = "rocketmq"
    durability = "SYNC_FLUSH: the commit log is on the disk before the answer, the timer not yet"

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._processes: list[ServerProcess] = []
        self._socket: socket.socket | None = None
        self._answers: BinaryIO | None = None

    def start(self, folder: Path) -> None:
        # The broker takes the port two below its own as well.
        name_port, _, _, port, ha_port, driver_port = range(first := find_free_ports(6), first + 6)
        name_server, broker = f"127.0.0.1:{name_port}", f"127.0.0.1:{port}"
        for name, text in (
            ("namesrv.conf", f"listenPort={name_port}\nbindAddress=127.0.0.1\n"),
            (
                "broker.conf",
                _CONF.format(
                    name_server=name_server,
                    port=port,
                    ha_port=ha_port,
                    store=folder / "store",
                    precision_ms=_PRECISION_MS,
                ),
            ),
        ):
            (folder / name).write_text(text)
        heap = (f"-Xms{_HEAP}", f"-Xmx{_HEAP}", "-XX:+AlwaysPreTouch")
        named = "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", folder / "namesrv.conf"
        self._spawn(folder, "namesrv", "-Xmx256m", *named)
        served = "org.apache.rocketmq.broker.BrokerStartup", "-c", folder / "broker.conf"
        self._spawn(folder, "broker", *heap, *served)
        driver = self._spawn(folder, "driver", "-Xmx1g", "Driver", name_server, broker, driver_port)
        self._socket = driver.until_ready(lambda: _connect(driver_port), OSError)
        self._answers = self._socket.makefile("rb", 1 << 18)
        if self._number():
            raise RuntimeError("the driver does not begin")
        self._warm_up()

    def _spawn(self, folder: Path, name: str, *words: object) -> ServerProcess:
        # What the environment tells every JVM is not meant for what is measured.
        environ = {key: value for key, value in os.environ.items() if key != "JAVA_TOOL_OPTIONS"}
        process = ServerProcess(
            ["java", "-cp", _class_path(), f"-Duser.home={folder}", "-XX:+UseG1GC", *_OPENS]
            + [str(word) for word in words],
            folder / f"{name}.log",
            env=environ | {"ROCKETMQ_HOME": str(folder)},
        )
        self._processes.append(process)
        return process

    def _warm_up(self) -> None:
        """Messages that are due soon, all of them received before the work begins."""
        due_ms = [int(time.time() * 1_000) + 1_000] * _WARM_UP_LIST
        for _ in range(_WARM_UP // _WARM_UP_LIST):
            self.publish(due_ms, [b"warm-up"] * _WARM_UP_LIST)
        left = _WARM_UP
        for _, bodies in self.receive(time.time() + _WARM_UP_S):
            left -= len(bodies)
            if left <= 0:
                return
        raise RuntimeError(f"{left} messages of the warm-up did not come")

    def stop(self) -> None:
        if self._socket is not None:
            self._socket.close()
        for process in reversed(self._processes):
            process.stop()

    def publish(self, due_ms: Sequence[int], bodies: Sequence[bytes]) -> Ids:
        parts = [b"P", struct.pack(">I", len(bodies))]
        for due, body in zip(due_ms, bodies, strict=True):
            parts += (struct.pack(">qI", due, len(body)), body)
        self._send(b"".join(parts))
        if trouble := self._text():
            raise RuntimeError(trouble.decode())
        return self._text().split(b"\n")

    def receive(self, until_s: float) -> Iterator[tuple[float, Sequence[bytes]]]:
        self._send(b"S")
        while (left_s := until_s - time.time()) > 0:
            self._connected().settimeout(left_s)
            try:
                received_us, count = struct.unpack(">qI", self._read(12))
            except TimeoutError:
                return
            self._connected().settimeout(None)
            yield received_us / 1e6, [self._text() for _ in range(count)]

    def cancel(self, ids: Ids) -> int:
        handles = b"\n".join(ids)
        self._send(b"C" + struct.pack(">I", len(handles)) + handles)
        return self._number()

    # -- the driver -------------------------------------------------------------------------------

    def _connected(self) -> socket.socket:
        if self._socket is None:
            raise RuntimeError("not started")
        return self._socket

    def _send(self, raw: bytes) -> None:
        self._connected().sendall(raw)

    def _read(self, size: int) -> bytes:
        raw = b"" if self._answers is None else self._answers.read(size)
        if len(raw) < size:
            raise RuntimeError("the driver has ended")
        return raw

    def _number(self) -> int:
        return int.from_bytes(self._read(4), "big")

    def _text(self) -> bytes:
        return self._read(self._number())


def _connect(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), timeout=5)
    made.settimeout(None)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def _class_path() -> str:
    return f"{_BUILD / 'classes'}:{_BUILD / 'lib'}/*"


def version() -> str:
    """Of the broker; raises OSError where Java, Maven or their registry is missing."""
    for program in ("java", "javac", "mvn"):
        if shutil.which(program) is None:
            raise FileNotFoundError(f"{program} is not installed")
    _build()
    (jar,) = (_BUILD / "lib").glob("rocketmq-broker-*.jar")
    return "RocketMQ " + jar.stem.rpartition("-")[2]


def _build() -> None:
    """Fetch the jars and compile the driver, unless that was done."""
    if (_BUILD / "classes/Driver.class").exists():
        return
    fetch = ["mvn", "-q", "-B", "-f", _SOURCES / "pom.xml", "dependency:copy-dependencies"]
    compiled = ["javac", "-cp", _class_path(), "-d", _BUILD / "classes", _SOURCES / "Driver.java"]
    for command in ([*fetch, f"-DoutputDirectory={_BUILD / 'lib'}"], compiled):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(done.stdout[-500:] + done.stderr[-500:])


PEERS: Final = (RocketMQ,)
