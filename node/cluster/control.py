"""The control process beside this broker, and the broker's calls to it."""

import asyncio
import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Final

import hourwheel
from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.internal.v1 import control_pb2 as wire
from hourwheel.internal.v1.control_link_pb2 import ShardReport
from hourwheel.types import FIRST_SHARD, NodeId
from node.cluster.peer_trust import Trust
from node.cluster.promotion import finish_promotion
from node.cluster.restored_control import begin_together
from node.config.checks import cluster_nodes
from node.config.model import NodeConfig
from node.metrics.family import ControlFacts
from node.shard import views
from node.shard.node_meta import CONTROL
from node.telemetry import logs
from node.telemetry.histogram import DURATION_BOUNDS, Histogram
from replication.control.client import ControlClient, Hello, Leader
from replication.control.config import EXIT_CANNOT_START, EXIT_NO_ROOM, ControlConfig
from replication.control.launcher import ControlProcess
from replication.control_state.commands import rules_of
from replication.control_state.state import ControlState
from storage.files.disk import RealDisk
from storage.files.file_header import Identity
from storage.files.real_file import fail

_ANSWER_S: Final = 3.0
_START_S: Final = 60.0
"""How long a control process may take to answer that has not ended: a machine may be very busy."""
_AGAIN_S: Final = 0.2
_WARN_TRIES: Final = 25
_LEAVE_S: Final = 0.3
"""How long to wait for the exit code of a process that has hung up. The lease ends by itself."""
_REPORT_MS_MAX: Final = 200.0
_REPORT_SHARE: Final = 0.2
"""Of `report_timeout_ms`: a node that lives is heard of several times before it counts as dead."""
_ENDS: Final = "ends"
_LINK: Final = "link"
_NAME_BYTES: Final = 4
"""Paths of sockets must be short."""
_log = logs.get(__name__)


def find_cluster_id(config: NodeConfig, trust: Trust) -> bytes:
    """The cluster's id, 16 bytes: as configured, else of its nodes and of what they trust.

    So nodes that were never in touch agree on it, and two clusters never do.
    """
    cluster = config.cluster
    if cluster.id:
        return bytes.fromhex(cluster.id)
    hasher = hashlib.blake2b(digest_size=16, person=b"hourwheel")
    for text in sorted(cluster_nodes(cluster.nodes)):
        hasher.update(text.encode() + b"\n")
    hasher.update(trust.secret.encode() + trust.authority)
    return hasher.digest()


def _socket_folder(data_directory: Path) -> Path:
    """A folder that only this user may enter, the same at each start.

    Not in the data directory: the paths of sockets must be short, and operators copy that one.
    Raises DiskFull, DiskFailed.
    """
    digest = hashlib.blake2b(os.fsencode(data_directory.absolute()), digest_size=6).hexdigest()
    folder = _temporary_folder() / f"hourwheel-{os.getuid()}-{digest}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        if is_ours and not found.st_mode & 0o077:
            return folder
        return Path(tempfile.mkdtemp(prefix="hourwheel-"))  # another user has the name
    except OSError as error:
        fail(error, "make folder", str(folder))


def _make_way(folder: Path, boot_id: bytes) -> Path:
    """Where this control process listens; removes what former ones left there.

    A path of its own: the process of a broker that was killed may not have noticed yet, and would
    take this one for its own.
    """
    for left in folder.glob(f"{_LINK}*"):
        with contextlib.suppress(OSError):  # nothing depends on it
            left.unlink()
    return folder / f"{_LINK}-{boot_id[:_NAME_BYTES].hex()}"


def _temporary_folder() -> Path:
    """As `tempfile` has it; where the disk is full it finds none, since it tries to write there."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - who may enter is looked at


class ControlEnds:
    """How often a control process has ended by itself, and how: kept across restarts.

    A node whose control process is gone ends, too, and its supervisor starts it again. So only the
    next process can report it. Nothing depends on the file, and it is not synced.

    Attributes:
        count: how often, since the node's directory was made.
        last_code: exit code of the last time, negative for a signal; 0: it never did.
    """

    def __init__(self, path: Path) -> None:
        """Read what former processes noted in the file `path`; an unreadable one counts as none."""
        self._path = path
        self.count = self.last_code = 0
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            noted: dict[str, Any] = json.loads(path.read_text())
            self.count, self.last_code = int(noted["count"]), int(noted["last_code"])

    def note(self, code: int) -> None:
        """It has ended with this exit code, and not at the node's request."""
        self.count, self.last_code = self.count + 1, code
        beside = self._path.with_name(self._path.name + ".tmp")
        with contextlib.suppress(OSError):  # a full disk: reported elsewhere
            beside.write_text(json.dumps({"count": self.count, "last_code": code}))
            beside.replace(self._path)


class ClusterControl:
    """See the top of this file. Is a `ControlPort`."""

    def __init__(
        self,
        config: NodeConfig,
        cluster_id: bytes,
        boot_id: bytes,
        *,
        on_state: Callable[[ControlState], None],
        on_lost: Callable[[errors.HourwheelError], None],
        retry_s: float = _AGAIN_S,
        make_client: Callable[..., ControlClient] = ControlClient,
    ) -> None:
        """Nothing runs yet.

        Args:
            config: of the node.
            cluster_id: 16 bytes.
            boot_id: of this start of the node.
            on_state: called with each new state, once the node is registered.
            on_lost: called with the reason when the process is gone or silent.
            retry_s: between two attempts to register.
            make_client: makes the link to the process.
        """
        self._retry_s = retry_s
        self._config, self._cluster_id, self._boot_id = config, cluster_id, boot_id
        self._on_state = on_state
        self._folder = _socket_folder(config.node.data_directory)
        socket_path = _make_way(self._folder, boot_id)
        self._process = ControlProcess(self._process_config(socket_path))
        self._on_lost = on_lost
        self.client = make_client(
            socket_path,
            on_state=self._on_client_state,
            on_leader=self._on_leader,
            on_lost=self._on_link_lost,
        )
        self._commands = Histogram(DURATION_BOUNDS)
        self._commands_failed = self._leader_changes = 0
        self._last_leader = ""
        self.ends = ControlEnds(config.node.data_directory / CONTROL / _ENDS)
        self.is_registered = False
        """Whether the cluster knows of this life of the node."""
        self._is_started = False

    def _process_config(self, socket_path: Path) -> ControlConfig:
        config, cluster = self._config, self._config.cluster
        nodes = cluster_nodes(cluster.nodes)
        me = config.node.id
        return ControlConfig(
            node_id=me,
            cluster_id=self._cluster_id.hex(),
            directory=str(config.node.data_directory / CONTROL),
            socket_path=str(socket_path),
            listen=cluster.control_listen or nodes[me].control,
            peers={node: one.control for node, one in nodes.items() if node != me},
            address=nodes[me].control,
            secret_file=cluster.secret_file,
            certificate_file=cluster.tls_certificate_file,
            key_file=cluster.tls_key_file,
            authority_file=cluster.tls_authority_file,
            min_in_sync=cluster.min_in_sync,
            report_interval_ms=min(_REPORT_MS_MAX, cluster.report_timeout_ms * _REPORT_SHARE),
            report_timeout_ms=float(cluster.report_timeout_ms),
            allow_faults=cluster.allow_faults,
            event_loop=config.node.event_loop,
            log_format=self._config.telemetry.log_format,
            log_level=self._config.telemetry.log_level,
        )

    def _begins_later(self) -> bool:
        """Whether this node does not know its cluster yet, as configured or after a restore."""
        config = self._config
        disk = RealDisk(config.node.data_directory, is_private=True)
        finish_promotion(disk)
        nodes = cluster_nodes(config.cluster.nodes)
        waits = begin_together(
            disk,
            Identity(self._cluster_id, FIRST_SHARD),
            config.node.id,
            {node: addresses.control for node, addresses in nodes.items()},
            config.cluster.min_in_sync,
        )
        return waits or config.cluster.join

    async def start(self) -> None:
        """Start the process and wait until it answers.

        Raises:
            Unavailable: it does not.
            ConfigError: it cannot start; why is in its own lines of the log.
            DiskFull: it cannot start, for want of room.
            DiskFailed: its folder cannot be made.
        """
        # Not before: where the folder is, the directory is a cluster's, and this start may be
        # refused until here.
        directory = self._config.node.data_directory / CONTROL
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            fail(error, "make folder", str(directory))
        self._process.config = replace(self._process.config, joins=self._begins_later())
        await self._process.start()
        self._is_started = True
        hello = Hello(self._config.node.id, self._boot_id)
        starting = asyncio.ensure_future(self.client.start(hello, timeout_s=_START_S))
        ended = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait({starting, ended}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                self.ends.note(ended.result())
            if ended.done() and ended.result() == EXIT_NO_ROOM:
                raise errors.DiskFull("the control process has no room to start: see above")
            if ended.done() and ended.result() == EXIT_CANNOT_START:
                raise errors.ConfigError("the control process cannot start: see what it says above")
            await starting
        finally:
            starting.cancel()
            ended.cancel()

    def _on_link_lost(self) -> None:
        self._leaving = asyncio.get_running_loop().create_task(self._note_end())

    async def _note_end(self) -> None:
        """Say that the process is gone, and how it has ended, where it has."""
        error: errors.HourwheelError = errors.Unavailable("the control process is gone")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                code = await self._process.wait()
                self.ends.note(code)
                _log.error("control_process_ended", exit_code=code, ends=self.ends.count)
                if code == EXIT_CANNOT_START:  # the cluster has no place for this node any more
                    error = errors.ConfigError("the control process gave up: see its words above")
        self._on_lost(error)

    async def register(self, *, is_sound: bool, seen: wire.SeenEpoch) -> None:
        """Register this node, however long it takes to find a majority."""
        config = self._config
        nodes = cluster_nodes(config.cluster.nodes)
        mine = nodes[config.node.id]
        command = wire.RegisterNodeCommand(
            node_id=config.node.id,
            api_address=mine.api,
            data_address=mine.data,
            control_address=mine.control,
            boot_id=self._boot_id,
            software_version=hourwheel.__version__,
            isr_is_sound=is_sound,
            seen=[seen],
            feature_level=views.FEATURE_LEVEL,
        )
        request_id: bytes | None = None
        for tries in count(1):
            if tries % _WARN_TRIES == 0:  # this node, or its twin, or a wrong secret, or the others
                _log.warning("registration_unanswered", node=config.node.id, tries=tries)
            try:
                result = await self.client.propose(
                    timeout_s=_ANSWER_S, request_id=request_id, register_node=command
                )
            except errors.Timeout as error:
                request_id = bytes.fromhex(error.params["request_id"])
            except errors.Unavailable as error:
                _log.debug("registration_failed", reason=error.message)
            else:
                if result.outcome == wire.ControlOutcome.CONTROL_OUTCOME_OK:
                    break
                _log.warning("registration_refused", reason=result.reason)
                request_id = None
            await asyncio.sleep(self._retry_s)
        self.is_registered = True
        self._on_state(self.client.state)

    def _on_client_state(self, state: ControlState) -> None:
        if self.is_registered:
            self._on_state(state)

    def facts(self) -> ControlFacts:
        """For the metrics."""
        ping, ends = self.client.ping, self.ends
        return ControlFacts(
            stall_count=ping.stall_count,
            stall_ms_max=ping.stall_ms_max,
            ends=ends.count,
            last_exit_code=ends.last_code,
            leader_changes=self._leader_changes,
            commands=self._commands,
            commands_failed=self._commands_failed,
        )

    def _on_leader(self, leader: Leader) -> None:
        if leader.node_id and leader.node_id != self._last_leader:
            self._leader_changes += bool(self._last_leader)  # the first one is no change
            self._last_leader = leader.node_id

    def is_dead(self, node: NodeId) -> bool:
        """See ControlPort."""
        said = self.client.reports.get(node)
        return said is not None and not said.broker_alive

    def report(self, shards: list[ShardReport]) -> None:
        """See ControlPort."""
        self.client.report(shards)

    async def propose(self, command: wire.ControlCommand) -> wire.ControlResult:
        """See ControlPort."""
        command.codec_version = rules_of(command)
        now = asyncio.get_running_loop().time
        begun_s = now()
        try:
            result = await self.client.propose_command(command, _ANSWER_S)
        except HourwheelError:
            self._commands_failed += 1
            raise
        self._commands.observe(now() - begun_s)
        return result

    async def stop(self) -> None:
        """Leave, and end the process."""
        await self.client.close()
        if self._is_started:
            await self._process.stop()
        with contextlib.suppress(OSError):  # it is in use again, or not empty
            self._folder.rmdir()
