"""A real cluster of n processes on this machine: made in a folder, started, found its way in.

async with Cluster(folder, network) as cluster:
    master = await cluster.master()
    await master.kill()
"""

import asyncio
import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self

from chaos.certificates import Authority, Files
from chaos.network import Network
from chaos.node_process import TREE, NodeProcess
from chaos.principals import ADMIN, Principals
from hourwheel import AsyncAdmin, errors
from hourwheel.client.cluster_status import ClusterStatus
from hourwheel.clock import SystemClock

_LOOK_S: Final = 0.02
_ANSWER_S: Final = 2.0
HANG_S: Final = 60.0
_BEGINNINGS: Final = frozenset({"mastership_started", "master"})
"""What a node says when it serves; the second is of the first versions, as below."""
_ENDS: Final = frozenset({"mastership_ended", "node_started", "master no more", "serving"})
SMALL: Final[dict[str, dict[str, Any]]] = {
    "disk": {"free_bytes_min": 0, "reserve_bytes": 0},
    "log": {"segment_bytes": 4 << 20, "index_interval_bytes": 1 << 13},
    "wheel": {
        "memtable_units": 1_024,
        "memtable_span_bytes": 1 << 17,
        "merge_run_count": 3,
        "job_units_per_slice": 1_024,
    },
    "telemetry": {"log_format": "json"},
}
"""Sizes with which a node often does what it else does now and then."""


class Mastership(NamedTuple):
    """Who says in its log that it is the master, and since when."""

    epoch: int
    node: str


class ShardStatus(Protocol):
    """What is looked at of a node's status."""

    @property
    def epoch(self) -> int: ...  # noqa: D102
    @property
    def log_end_offset(self) -> int: ...  # noqa: D102
    @property
    def high_watermark(self) -> int: ...  # noqa: D102
    @property
    def applied_offset(self) -> int: ...  # noqa: D102


class NotWell(AssertionError):
    """The cluster did not come to what was waited for."""


class Cluster:
    """See the top of this file."""

    def __init__(
        self,
        folder: Path,
        network: Network,
        nodes: Iterable[str] = ("n1", "n2", "n3"),
        *,
        values: Mapping[str, Mapping[str, Any]] | None = None,
        tree: Path = TREE,
        hang_s: float = HANG_S,
        is_guarded: bool = False,
    ) -> None:
        """Nothing runs yet.

        Args:
            folder: for all files.
            network: where the nodes are.
            nodes: their ids.
            values: configuration, section by section, on top of `SMALL`.
            tree: the checkout that runs.
            hang_s: how long anything may take.
            is_guarded: with TLS towards clients, and access control: see `principals`.
        """
        self.hang_s = hang_s
        self.folder, self.network = folder, network
        self.clock = SystemClock()
        self._values, self._tree = {**SMALL, **(values or {})}, tree
        self._is_guarded = is_guarded
        self._authority: Authority | None = None
        self._shared_secret = folder / "secret"
        self.principals: Principals | None = None
        """Who may do what, once it is written; None: all may."""
        self.deaths: list[str] = []
        """Of nodes that ended by themselves."""
        self.nodes = {node: self._node(node) for node in nodes}
        """Its members."""
        self.others: dict[str, NodeProcess] = {}
        """Who waits to be made a member, and who was one."""
        self._made_count = len(self.nodes)

    def _node(self, name: str) -> NodeProcess:
        at, prefix = self.network.listens(name).api, self.network.prefix(name)
        return NodeProcess(name, self.folder / name, at, prefix, self._tree)

    @property
    def everybody(self) -> dict[str, NodeProcess]:
        """Members, those who wait to be one, and those who were."""
        return {**self.nodes, **self.others}

    @property
    def servers(self) -> str:
        """For clients: all nodes."""
        return ",".join(node.api for node in self.nodes.values())

    @property
    def is_alone(self) -> bool:
        """One node that is no cluster: always its own master."""
        return len(self.nodes) == 1

    def write(self) -> None:
        """Write everybody's configuration."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_trust()
        for node in self.nodes.values():
            self._write_node(node)

    def _write_node(self, node: NodeProcess, **cluster: str | bool) -> None:
        """`cluster`: keys of that section, on top of all others."""
        node.folder.mkdir(exist_ok=True)
        name, listens = node.node_id, self.network.listens(node.node_id)
        named = dict.fromkeys((*self.nodes, name))
        seen = {peer: self.network.seen_from(name, peer) for peer in named}
        files = self._certificate(name)
        sections: dict[str, dict[str, Any]] = {
            **{section: dict(keys) for section, keys in self._values.items()},
            "node": {
                "id": name,
                "data_directory": str(node.data),
                "listen": listens.api,
                "metrics_listen": "",
                **self._values.get("node", {}),
            },
        }
        if self.principals is not None and files is not None:
            sections |= self.principals.sections(files.tls_certificate_file, files.tls_key_file)
        if (node.tree / "node" / "console").is_dir():  # else it is an older version
            sections["console"] = {"listen": "", **self._values.get("console", {})}
        if len(named) > 1:
            trust = {"secret_file": str(self._shared_secret)}
            if files is not None and self.network.is_tls:
                trust = files._asdict()
            sections["cluster"] = {
                "nodes": " ".join(f"{peer}={at.text}" for peer, at in seen.items()),
                "data_listen": listens.data,
                "control_listen": listens.control,
                "allow_faults": True,
                **trust,
                **self._values.get("cluster", {}),
                **cluster,
            }
        node.config_file.write_text(_toml(sections))

    def _write_trust(self) -> None:
        self._shared_secret.write_text(secrets.token_urlsafe(24))
        if self.network.is_tls or self._is_guarded:
            self._authority = Authority.make(self.folder / "authority")
        if self._is_guarded and self._authority is not None:
            self.principals = Principals.make(self.folder, self._authority, self._tree)

    def _certificate(self, name: str) -> Files | None:
        if self._authority is None:
            return None
        host = self.network.listens(name).data.rpartition(":")[0]
        return self._authority.issue(name, (host,))

    def options(self, principal: str) -> dict[str, Any]:
        """Of a client that is this principal."""
        return {} if self.principals is None else self.principals.options(principal)

    # -- who belongs to it ------------------------------------------------------------------------

    async def join(self) -> NodeProcess:
        """A node more, that serves, and waits to be made a member."""
        self._made_count += 1
        name = f"n{self._made_count}"
        self.network.add(name)
        node = self.others[name] = self._node(name)
        async with AsyncAdmin(self.servers, **self.options(ADMIN)) as admin:
            cluster_id = (await admin.members()).cluster_id
        self._write_node(node, join=True, id=cluster_id)
        await node.start()
        return node

    def set_members(self, names: Iterable[str]) -> None:
        """From now on these nodes are the members."""
        everybody, chosen = self.everybody, set(names)
        self.nodes = {name: node for name, node in everybody.items() if name in chosen}
        self.others = {name: node for name, node in everybody.items() if name not in chosen}

    def change_version(self, node: NodeProcess, tree: Path, python: str) -> None:
        """A node that does not run is of another checkout from its next start on."""
        node.tree, node.python = tree, python
        self._write_node(node)

    # -- life -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Write, start, and wait for a master."""
        self.write()
        try:
            await self.start_all()
            await self.master()
        except BaseException:
            await self.remove()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Whatever state it is in: end all processes."""
        await self.remove()

    async def start_all(self) -> None:
        """Start those that do not run, and wait until they serve."""
        away = [node for node in self.nodes.values() if not node.is_running]
        for node in away:
            await node.spawn()
        await asyncio.gather(*(node.ready() for node in away))

    async def kill_all(self) -> None:
        """SIGKILL to everybody at once."""
        running = [node for node in self.everybody.values() if node.is_running]
        await asyncio.gather(*(node.kill() for node in running))

    async def remove(self) -> None:
        """End all processes at once."""
        await asyncio.gather(*(node.remove() for node in self.everybody.values()))

    # -- who is master ----------------------------------------------------------------------------

    def masterships(self) -> list[Mastership]:
        """All that the nodes' logs tell of, in the order of epochs; of a node alone, nothing."""
        found = [
            Mastership(int(event["epoch"]), name)
            for name, node in self.everybody.items()
            for event in node.read_log()
            if event.get("event") in _BEGINNINGS
        ]
        return sorted(found)

    def epoch(self) -> int:
        """The highest one that had a master; 0: none."""
        return max((mastership.epoch for mastership in self.masterships()), default=0)

    async def master(self, *, after_epoch: int = 0) -> NodeProcess:
        """The newest master, that runs, of an epoch above `after_epoch`.

        Raises:
            NotWell: there is none for long.
        """
        if self.is_alone:
            return next(iter(self.nodes.values()))
        try:
            async with asyncio.timeout(self.hang_s):
                while True:
                    masterships = self.masterships()
                    if masterships and masterships[-1].epoch > after_epoch:
                        node = self.nodes.get(masterships[-1].node)
                        if node and node.is_running and not self._has_retired(node):
                            return node
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise NotWell(f"no master above epoch {after_epoch}; {self.masterships()}") from None

    @staticmethod
    def _has_retired(node: NodeProcess) -> bool:
        last = [
            event["event"] for event in node.events if event.get("event") in _BEGINNINGS | _ENDS
        ]
        return last[-1] not in _BEGINNINGS

    def followers(self, master: NodeProcess) -> list[NodeProcess]:
        """All others."""
        return [node for node in self.nodes.values() if node is not master]

    async def revive(self) -> None:
        """Start again nodes that ended by themselves, as a supervisor would; it is remembered."""
        for node in self.nodes.values():
            if not node.is_running:
                self.deaths.append(
                    f"{node.node_id} ended by itself, exit code {await node.ended()}"
                )
                await node.start()

    # -- how it is --------------------------------------------------------------------------------

    async def statuses(self) -> dict[str, ShardStatus]:
        """What each node says of its shard; those that do not answer are left out."""
        found = await asyncio.gather(*(self._status(node) for node in self.nodes.values()))
        return {
            name: status
            for name, status in zip(self.nodes, found, strict=True)
            if status is not None
        }

    async def find_raft_leader(self) -> str:
        """Id of the node that leads the control plane, and is heard by a majority.

        Raises:
            NotWell: there is none for long.
        """
        try:
            async with asyncio.timeout(self.hang_s):
                while True:
                    for status in await asyncio.gather(
                        *map(self._find_status, self.nodes.values())
                    ):
                        control = None if status is None else status.control
                        if control is not None and control.has_majority:
                            return control.leader_node_id
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise NotWell("the control plane has no leader with a majority") from None

    async def _status(self, node: NodeProcess) -> ShardStatus | None:
        status = await self._find_status(node)
        return None if status is None else status.shards[0]

    async def _find_status(self, node: NodeProcess) -> ClusterStatus | None:
        options = self.options(ADMIN)
        try:
            async with asyncio.timeout(_ANSWER_S), AsyncAdmin(node.api, **options) as admin:
                return await admin.status()
        except (errors.HourwheelError, TimeoutError):
            return None

    async def whole(self) -> None:
        """Wait until there is a master and all nodes have caught up with it, load or not.

        Nodes that have ended by themselves are started again.

        Raises:
            NotWell: that takes too long.
        """
        master = await self.master()
        goal = (await self.statuses()).get(master.node_id)
        end = 0 if goal is None else goal.log_end_offset
        await self._until(
            lambda statuses: all(one.applied_offset >= end for one in statuses.values())
        )

    async def in_sync_without(self, node_id: str) -> None:
        """Wait until a master serves without waiting for a node. Raises NotWell."""
        await self._until_master(lambda status: node_id not in status.shards[0].in_sync)

    async def refusing(self) -> None:
        """Wait until there is a master whose disk is full, as it says. Raises NotWell."""
        await self._until_master(
            lambda status: any(
                one.read_only_reason for one in status.nodes if one.node_id == status.answered_by
            )
        )

    async def _until_master(self, is_so: Callable[[ClusterStatus], bool]) -> None:
        """Wait until the master's own word is so."""
        try:
            async with asyncio.timeout(self.hang_s):
                while True:
                    found = await asyncio.gather(*map(self._find_status, self.nodes.values()))
                    if any(one and one.shards[0].may_act and is_so(one) for one in found):
                        return
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise NotWell("no master says what was waited for") from None

    async def knowing(self, level: int) -> None:
        """Wait until each node has heard that all know a feature level. Raises NotWell."""
        try:
            async with asyncio.timeout(self.hang_s):
                while True:
                    found = await asyncio.gather(*map(self._find_status, self.nodes.values()))
                    if all(
                        one and min(each.feature_level for each in one.nodes) >= level
                        for one in found
                    ):
                        return
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise NotWell(f"not all nodes know feature level {level}") from None

    async def quiet(self) -> dict[str, ShardStatus]:
        """Wait until all nodes have applied the same log to its end; what they said then.

        Raises:
            NotWell: that takes too long.
        """
        return await self._until(
            lambda statuses: (
                len({(one.log_end_offset, one.applied_offset) for one in statuses.values()}) == 1
                and all(one.log_end_offset == one.applied_offset for one in statuses.values())
            )
        )

    async def _until(
        self, is_so: Callable[[dict[str, ShardStatus]], bool]
    ) -> dict[str, ShardStatus]:
        statuses: dict[str, ShardStatus] = {}
        try:
            async with asyncio.timeout(self.hang_s):
                while True:
                    await self.revive()
                    statuses = await self.statuses()
                    if len(statuses) == len(self.nodes) and is_so(statuses):
                        return statuses
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            ends = {
                name: (one.epoch, one.log_end_offset, one.high_watermark, one.applied_offset)
                for name, one in statuses.items()
            }
            raise NotWell(f"the nodes do not come together: {ends}") from None


def _toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for section, keys in sections.items():
        lines.append(f"[{section}]")
        # Texts, numbers and booleans look the same in JSON.
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join([*lines, ""])
