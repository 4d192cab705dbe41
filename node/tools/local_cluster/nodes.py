"""A cluster on this machine, each node a process of its own: for trying out, demos and tests.

    async with LocalCluster(directory, 3) as cluster:
        master = await cluster.wait_for_master()
        await cluster.kill_node(master)         # as a crash of its process
        await cluster.start_node(master)

In the directory there is a `<node>.toml`, a `<node>.log` and a folder `<node>` for each node, and
the secret that they share. A node can be started from its file by hand. A cluster that is made
again in the same directory goes on with what is there: configuration, ports, data.

All listen on the loopback interface. Without a base port, free ports are looked for below those
that the system gives to outgoing connections: one of these could take the port of a node that is
down, and so keep it from starting again.
"""

import asyncio
import json
import os
import secrets
import socket
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from hourwheel import errors
from hourwheel.client.cluster_status import ClusterStatus, Phase, ShardStatus
from hourwheel.client.node_probe import NodeProbe
from hourwheel.clock import SystemClock
from hourwheel.errors import HourwheelError
from hourwheel.transport.access import PLAIN
from hourwheel.types import NodeId
from node.config.checks import cluster_nodes, split_address
from node.config.model import NodeConfig
from node.config.sources import load
from node.process.subprocess_node import ChildNode
from node.tools.local_cluster import security

PORTS_A_NODE: Final = 10
"""Node i has the ports from base + 10 * i on: clients, metrics, brokers, control processes,
the console."""
NODES_MAX: Final = 9
_SECURITY: Final = "security"
_HOST: Final = "127.0.0.1"
_SECRET_BYTES: Final = 24
_FIRST_PORT: Final = 20_000
_END_PORT: Final = 32_000
_BLOCK_PORTS: Final = 100
_BLOCKS: Final = (_END_PORT - _FIRST_PORT) // _BLOCK_PORTS
_ASK_MS: Final = 1_000.0
_LOOK_S: Final = 0.05
"""To ask a node takes a connection, and the processor that it starts with."""
_STARTUP_S: Final = 60.0
_PORT_MAX: Final = 65_535


class LocalNode(ChildNode):
    """One node, as its configuration file says."""

    def __init__(self, config_file: Path, *, startup_s: float = _STARTUP_S) -> None:
        """Nothing runs yet. Raises ConfigError where the file is none."""
        config = load(config_file, {})
        super().__init__(
            config.node.data_directory,
            log_file=config_file.with_suffix(".log"),
            startup_s=startup_s,
        )
        self._config = config
        self.node_id = config.node.id
        self.config_file = config_file
        self.log_file = config_file.with_suffix(".log")
        self.address, self.metrics_address = config.node.listen, config.node.metrics_listen
        self.console_address = config.console.listen

    @property
    def config(self) -> NodeConfig:
        """As its file says."""
        return self._config

    def _arguments(self) -> Sequence[str]:
        return ("--config", str(self.config_file.absolute()))

    def _overrides(self) -> Iterator[tuple[str, str]]:
        return iter(())


class LocalCluster:
    """See the top of this file. On one event loop."""

    def __init__(
        self,
        directory: Path,
        count: int = 3,
        *,
        base_port: int = 0,
        values: Mapping[str, Any] | None = None,
        is_secure: bool = False,
        startup_s: float = _STARTUP_S,
    ) -> None:
        """Write what is not there yet; nothing runs.

        Args:
            directory: see the top of this file.
            count: how many nodes; of a directory with nodes in it, as many as there are.
            base_port: see `PORTS_A_NODE`; 0: wherever it is free. For a new directory only.
            values: sections of each node's configuration. For a new directory only.
            is_secure: with TLS and a user, see `node.tools.local_cluster.security`. For a new
                directory only.
            startup_s: how long a node may take until it answers.

        Raises:
            ConfigError: the directory has another number of nodes, or what is there is not usable.
        """
        self.directory = directory
        files = sorted(directory.glob("node-*.toml"))
        if not files:
            files = write_cluster(directory, count, base_port, values or {}, is_secure=is_secure)
        if len(files) != count:
            raise errors.ConfigError(
                f"{directory} has a cluster of {len(files)} nodes, not {count}",
                key="cluster.nodes",
                value=count,
            )
        self.nodes = tuple(LocalNode(file, startup_s=startup_s) for file in files)
        self.is_secure = self.nodes[0].config.tls.is_on
        """Whether clients need `access`."""
        self.access = security.access_to(self.security_directory) if self.is_secure else PLAIN
        """How clients know the nodes, and show who they are."""
        self._down: set[int] = set(range(count))
        """Nodes that were stopped or killed on purpose."""

    @property
    def servers(self) -> str:
        """All addresses, as clients take them."""
        return ",".join(node.address for node in self.nodes)

    @property
    def security_directory(self) -> Path:
        """Where certificates and the administrator's secret are."""
        return (self.directory / _SECURITY).absolute()

    def busy_addresses(self) -> list[str]:
        """Of the addresses that the nodes need, those on which somebody listens already."""
        needed = [
            address
            for node in self.nodes
            for address in (
                *cluster_nodes(node.config.cluster.nodes)[node.node_id],
                *filter(None, [node.config.node.metrics_listen, node.config.console.listen]),
            )
        ]
        return [one for one in needed if not _is_free(split_address("listen", one)[1])]

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all nodes at once, and wait until each answers; a master may come later.

        Raises:
            Unavailable: one does not, or has ended; the others are stopped then. Its last words are
                in its log file.
        """
        starts = [self.start_node(index) for index in range(len(self.nodes))]
        failed = [
            error
            for error in await asyncio.gather(*starts, return_exceptions=True)
            if error is not None
        ]
        if failed:
            await self.stop()
            raise failed[0]

    async def stop(self) -> None:
        """Stop what runs, one node after the other, the master last."""
        order = [index for index in range(len(self.nodes)) if self.nodes[index].is_running]
        with suppress(HourwheelError):
            master = (await self.find_master())[0]
            order.sort(key=lambda index: index == master)
        for index in order:
            await self.stop_node(index)

    async def start_node(self, index: int) -> None:
        """Start one node and wait until it answers. Raises as `start`."""
        node = self.nodes[index]
        try:
            await node.start()
        except errors.Unavailable as error:
            raise errors.Unavailable(
                f"node {node.node_id}: {error.message}; see {node.log_file}", **error.params
            ) from None
        self._down.discard(index)

    async def stop_node(self, index: int) -> int:
        """Stop one node as an operator would; its exit code."""
        self._down.add(index)
        return await self.nodes[index].stop()

    async def kill_node(self, index: int) -> None:
        """`kill -9`."""
        self._down.add(index)
        await self.nodes[index].kill()

    async def watch(self) -> None:
        """Return never.

        Raises:
            Unavailable: a node has ended by itself.
        """
        while True:
            for index, node in enumerate(self.nodes):
                if index not in self._down and not node.is_running:
                    raise errors.Unavailable(
                        f"node {node.node_id} has ended; see {node.log_file}", node=node.node_id
                    )
            await asyncio.sleep(_LOOK_S)

    async def __aenter__(self) -> Self:
        """Start. Raises as `start`."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop; where that is broken off, at once."""
        try:
            await self.stop()
        finally:
            for node in self.nodes:
                node.cut_short()

    # --- what it says ---------------------------------------------------------------------------

    async def status_of(self, index: int, timeout_ms: float = _ASK_MS) -> ClusterStatus:
        """What one node knows of the cluster. Raises HourwheelError where it does not answer."""
        probe = NodeProbe(self.nodes[index].address, self.access)
        try:
            return await probe.status(timeout_ms)
        finally:
            await probe.close()

    async def find_master(self) -> tuple[int, ShardStatus]:
        """(the node that says of itself that it is the master, and may act; the shard as it says).

        Raises:
            Unavailable: none does.
        """
        running = [index for index, node in enumerate(self.nodes) if node.is_running]
        requested = (self.status_of(index) for index in running)
        answers = await asyncio.gather(*requested, return_exceptions=True)
        found = [
            (answer.shards[0].epoch, index, answer.shards[0])
            for index, answer in zip(running, answers, strict=True)
            if isinstance(answer, ClusterStatus) and answer.shards and answer.shards[0].may_act
        ]
        if not found:
            raise errors.Unavailable("no node is the master now")
        _, index, shard = max(found, key=lambda one: one[:2])
        return index, shard

    async def wait_for_master(
        self, *, epoch_above: int = 0, in_sync: int = 0, timeout_s: float = _STARTUP_S
    ) -> int:
        """Wait until a node serves as the master: which. As `wait_for_shard`."""
        found, _ = await self.wait_for_shard(
            epoch_above=epoch_above, in_sync=in_sync, timeout_s=timeout_s
        )
        return found

    async def wait_for_shard(
        self, *, epoch_above: int = 0, in_sync: int = 0, timeout_s: float = _STARTUP_S
    ) -> tuple[int, ShardStatus]:
        """Wait until a node serves as the master: as `find_master`.

        Args:
            epoch_above: only of a later epoch than this.
            in_sync: and at least so many nodes are in sync and follow it, or are itself.
            timeout_s: give up after so long.

        Raises:
            Unavailable: there is none in time, or a node has ended meanwhile.
        """
        watching = asyncio.ensure_future(self.watch())
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    with suppress(errors.Unavailable):
                        index, shard = await self.find_master()
                        if shard.epoch > epoch_above and count_in_sync(shard) >= in_sync:
                            return index, shard
                    if watching.done():
                        watching.result()
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise errors.Unavailable(f"no master within {timeout_s:g} s") from None
        finally:
            watching.cancel()


def count_in_sync(shard: ShardStatus) -> int:
    """How many nodes are in sync, the master whose word this is included.

    A new cluster begins with all nodes in sync, also those that were never heard of: they count
    only when they follow.
    """
    follow = {one.node_id for one in shard.followers if one.phase is Phase.REPLICATING}
    return len({*follow, shard.master} & {*shard.in_sync})


# --- files --------------------------------------------------------------------------------------


def write_cluster(
    directory: Path,
    count: int,
    base_port: int,
    values: Mapping[str, Any],
    *,
    is_secure: bool = False,
) -> list[Path]:
    """Make secret and configurations of a new cluster; the files, by node.

    Args:
        directory: for them; made if need be.
        count: how many nodes.
        base_port: see `PORTS_A_NODE`; 0: wherever it is free.
        values: sections of each node's configuration.
        is_secure: with TLS and a user.

    Raises:
        ConfigError: so many nodes are not possible, or not there, or not with these values.
    """
    if not 1 <= count <= NODES_MAX:
        raise errors.ConfigError(f"1 to {NODES_MAX} nodes are possible", key="-n", value=count)
    base_port = base_port or find_free_ports(count * PORTS_A_NODE)
    if base_port + count * PORTS_A_NODE > _PORT_MAX:
        raise errors.ConfigError(f"port {base_port} is too high", key="base_port", value=base_port)
    directory.mkdir(parents=True, exist_ok=True)
    directory = directory.absolute()
    secret = directory / "secret"
    if not secret.exists():
        with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(_SECRET_BYTES) + "\n")
    ports = [base_port + index * PORTS_A_NODE for index in range(count)]
    named = [
        f"node-{number}=" + ",".join(f"{_HOST}:{port + offset}" for offset in (0, 2, 3))
        for number, port in enumerate(ports, 1)
    ]
    if is_secure:
        node_ids = [f"node-{number}" for number in range(1, count + 1)]
        now = datetime.fromtimestamp(SystemClock().wall_ms() / 1_000, UTC)
        security.make_files(directory / _SECURITY, node_ids, now)
    texts = {}
    for number, port in enumerate(ports, 1):
        sections = {name: dict(keys) for name, keys in values.items()}
        sections["node"] = {
            "id": f"node-{number}",
            "data_directory": str(directory / f"node-{number}"),
            "listen": f"{_HOST}:{port}",
            "metrics_listen": f"{_HOST}:{port + 1}",
            **sections.get("node", {}),
        }
        sections["console"] = {"listen": f"{_HOST}:{port + 4}", **sections.get("console", {})}
        sections["cluster"] = {
            "nodes": " ".join(named),
            "secret_file": str(secret),
            "min_in_sync": count // 2 + 1,
            **sections.get("cluster", {}),
        }
        if is_secure:
            sections |= security.sections_of(directory / _SECURITY, NodeId(f"node-{number}"))
        NodeConfig.of(sections)
        texts[directory / f"node-{number}.toml"] = toml_of(sections)
    for path, text in texts.items():  # whole or not at all: a file that is there is believed
        beside = path.with_suffix(".tmp")
        beside.write_text(text)
        beside.replace(path)
    return list(texts)


def toml_of(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Sections of texts, numbers and switches as TOML."""
    lines = ["# Made by `hourwheel cluster up`. All keys: docs/CONFIGURATION.md"]
    for name, keys in sections.items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    text = "\n".join(lines) + "\n"
    errors.invariant(tomllib.loads(text) == sections, "what is written can be read")
    return text


def find_free_ports(count: int) -> int:
    """The first of `count` ports in a row, 100 at most, on which no process listens now.

    Each process begins to look elsewhere, so that two that look at one time find different ones,
    however many each needs: what they find begins with a multiple of a hundred.

    Raises:
        ConfigError: there are none.
    """
    for step in range(_BLOCKS):
        first = _FIRST_PORT + (os.getpid() * 7 + step) % _BLOCKS * _BLOCK_PORTS
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise errors.ConfigError("no free ports", key="base_port", value=0)


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((_HOST, port))
        except OSError:
            return False
    return True
