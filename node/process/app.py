"""A node put together: the real clock and disk, the engine, the servers. Start and stop in order.

    start   lock -> probes -> node.meta -> shard (checkpoint, replay) -> engine -> metrics -> API
            -> SERVING
    stop    NOT_SERVING -> calls in flight end -> metrics -> engine (checkpoint) -> probes -> unlock

A node alone is a cluster of one (node/cluster/standalone.py). With others
(node/cluster/runtime.py) the control process starts before the shard, and the data plane behind the
engine; at a stop mastership is transferred first.

Who runs it in a process of its own is node/process/lifecycle.py; inside another program,
tests/support/embedded_node.py.
"""

import asyncio
import ssl
import uuid
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Final, TypeAlias

from hourwheel import errors
from hourwheel.clock import Clock, SystemClock
from hourwheel.stalls import ThreadMeter
from hourwheel.transport.access import PLAIN
from hourwheel.types import FIRST_SHARD
from node.access.audit import AuditLog
from node.access.audit_file import AuditFile
from node.access.authentication import Authenticator
from node.access.policy_feed import PolicyFeed
from node.access.port_gate import Admit, PortGate
from node.access.server_tls import ServerTls
from node.access.tokens import Tokens
from node.access.user_secrets import UserSecrets
from node.access.users_file import UsersFile
from node.api.forwarder import OPTIONS, Forwarder
from node.api.server import ApiServer, ServerParts
from node.broker.consumer_lag import ConsumerLag
from node.broker.disk_guard import DiskGuard
from node.broker.due_reading import DueReading
from node.broker.engine import Engine
from node.broker.settings import engine_config, shard_config
from node.broker.slewed_clock import SlewedClock, StepEvent
from node.cluster.runtime import ClusterRuntime
from node.cluster.standalone import StandaloneRuntime
from node.config.model import NodeConfig
from node.console.server import Console, reached_at
from node.metrics import collector
from node.metrics.family import ProcessFacts
from node.metrics.http import (
    LIVE,
    READY,
    STARTUP,
    MetricsServer,
    admit_in_loop,
    in_loop,
    probe_in_loop,
)
from node.process.exposure import warn_of_others
from node.process.last_exit import STOPPED, LastExit
from node.process.memory import Trimming
from node.process.scrubbing import Scrubbing
from node.repair.scrubber import FIRST_S, PASS_S_MIN
from node.shard.checkpoint import ShardPlace
from node.shard.node_meta import NodeMeta, open_node_meta
from node.shard.recovery import Opened
from node.telemetry import logs
from node.telemetry.failure import Failure
from node.telemetry.process_watch import ProcessStats, ProcessWatch
from node.telemetry.stats import ApiStats
from storage.files.directory_lock import DirectoryLock
from storage.files.disk import RealDisk
from storage.files.file_header import Identity
from storage.files.real_file import NO_ROOM

_PERCENT: Final = 0.01
_SECONDS: Final = 0.001
ROOM_LOOK_S: Final = 1.0
"""How often a node looks for room that cannot be opened without."""
_log = logs.get(__name__)

Cluster: TypeAlias = StandaloneRuntime | ClusterRuntime


class Node:
    """One node in the running event loop. `start` once, then `stop` once."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock | None = None,
        *,
        damage: errors.DataLoss | None = None,
    ) -> None:
        """Nothing is opened yet.

        Args:
            config: its configuration.
            clock: the machine's by default.
            damage: of the node that this one takes the place of, see `damage` there.
        """
        self.config = config
        self.damage: errors.DataLoss | None = None
        """Found where a start does not look: with `renewal`, the node that takes this one's place
        is to be filled anew by another node of the cluster."""
        self._former_damage = damage
        self.failure = Failure()
        """Resolved when the node cannot go on: its owner must end the process, or let it go."""
        self.renewal = asyncio.Event()
        """Set when the node is to be stopped and another one started in its place: it has fetched
        a snapshot, which a start installs, or has found `damage`."""
        self.address = ""
        """Where clients reach it, host:port, from `start` on."""
        self.metrics_address = ""
        """host:port of /metrics; empty for none."""
        self.console_address = ""
        """host:port of the console; empty for none."""
        self._clock = SystemClock() if clock is None else clock
        self._stats, self._process_stats = ApiStats(), ProcessStats()
        self._undo = AsyncExitStack()
        self._api: ApiServer | None = None
        self._last_exit, self._is_draining = "", False
        self._cluster: Cluster | None = None
        self.engine: Engine | None = None
        """From `start` on, as `_cluster`."""
        self._tls: ServerTls | None = None
        """From `start` on, where it is configured."""
        self._gate: PortGate | None = None
        """From when the node knows who asks."""

    @property
    def can_be_replaced(self) -> bool:
        """Whether another node, started in this one's place, can go on: it has not failed.

        Or it is alone, and found a file of its views damaged: the next one builds them from the
        log. One of a cluster ends its process instead, which others notice at once.
        """
        is_alone = not self.config.cluster.nodes
        return not self.failure.found.done() or (is_alone and self.failure.can_be_mended)

    async def start(self) -> None:
        """Open the directory and serve.

        Raises:
            StartupError: the directory is locked, foreign or of another version, or the
                configuration does not work here.
            DataLoss: what is stored is damaged; the message names file and offset.
            DiskFull: there is no room for even less than a shard; else it waits for some.
            FsyncFailed, DiskFailed: see storage.files.disk.
        """
        async with AsyncExitStack() as undo:
            disk = self._lock_directory(undo)
            self._tls = self._read_tls(undo)
            probes = self._start_probes(undo)
            clock = self._slewed_clock()
            cluster = self._make_cluster(undo, clock)
            cluster.claim_directory()
            meta = open_node_meta(disk, self.config.node.id, cluster.cluster_id)
            await cluster.start()
            engine = await self._open_engine(undo, disk, meta, cluster)
            started_ms = clock.now_ms()
            self._watch(undo, engine)
            self._tell_metrics(undo, probes, engine, clock, started_ms, cluster)
            self._cluster = cluster
            await self._start_api(undo, engine, started_ms, cluster)
            self._start_console(undo)
            await cluster.join()
            self._undo = undo.pop_all()
        _log.info(
            "node_started",
            address=self.address,
            metrics_address=self.metrics_address,
            console_address=self.console_address,
            node_id=meta.node_id,
            cluster_id=str(uuid.UUID(bytes=meta.cluster_id)),
        )

    async def stop(self, grace_ms: int | None = None) -> None:
        """Let calls in flight end for `grace_ms` (by default as configured), save, close."""
        self._is_draining = True
        await self.hand_over()
        if self._api is not None:
            _log.info("node_draining")
            await self._api.drain()
            await self._api.stop(self.config.node.drain_ms if grace_ms is None else grace_ms)
        await self._undo.aclose()
        _log.info("node_stopped")

    async def hand_over(self) -> None:
        """Have another node be the master, where this one is and another can; it serves on."""
        if self._cluster is not None:
            await self._cluster.transfer_mastership()

    async def cut_short(self) -> None:
        """End the draining of a `stop` that is under way: calls in flight are cancelled."""
        if self._api is not None:
            await self._api.stop(0)

    def _lock_directory(self, undo: AsyncExitStack) -> RealDisk:
        directory = self.config.node.data_directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise errors.DiskFull(f"no room to make {directory}", file=directory) from error
            raise errors.ConfigError(
                f"node.data_directory = '{directory}': {error.strerror}",
                key="node.data_directory",
                value=directory,
            ) from error
        undo.enter_context(DirectoryLock.acquire(directory))
        self._note_ends(undo, LastExit(directory))
        return RealDisk(directory)

    def _note_ends(self, undo: AsyncExitStack, last: LastExit) -> None:
        """The next process shall know how this one ended."""
        self._last_exit = last.reason
        failed = self.failure.found

        def note_stop(_kind: object, error: BaseException | None, _trace: object) -> None:
            if not failed.done():
                last.note(STOPPED if error is None else _reason_of(error))

        def note_failure(found: "asyncio.Future[errors.HourwheelError]") -> None:
            if not found.cancelled():
                last.note(found.result().reason)

        undo.push(note_stop)
        failed.add_done_callback(note_failure)

    def _read_tls(self, undo: AsyncExitStack) -> ServerTls | None:
        if not self.config.tls.is_on:
            return None
        tls = ServerTls(self.config.tls, self._clock.wall_ms, self._stats.note_tls_files)
        undo.callback(asyncio.create_task(tls.watch()).cancel)
        return tls

    def _make_authenticator(self, undo: AsyncExitStack, policies: PolicyFeed) -> Authenticator:
        section = self.config.authentication
        watched: list[Coroutine[object, None, None]] = []
        tokens = None
        find_hash = policies.find_hash

        def look_again(_: object) -> None:
            """A principal that is taken out of a file keeps nothing that is open."""
            policies.control.look_again()

        if section.token_keys_file:
            tokens = Tokens(section, self._stats.login_file("token_keys"))
            watched.append(tokens.files.watch(look_again))
        if section.users_file:
            users = UsersFile(section.users_file, self._stats.login_file("users"))
            watched.append(users.files.watch(look_again))

            def find_hash(name: str) -> str | None:
                return users.find_hash(name) or policies.find_hash(name)

        secrets = UserSecrets(find_hash, self._clock.monotonic_ms)
        undo.callback(secrets.close)
        for one in watched:
            undo.callback(asyncio.create_task(one).cancel)
        return Authenticator(
            now_ms=self._clock.wall_ms,
            tokens=tokens,
            secrets=secrets,
            asks_certificates=self.config.tls.client_certificates == "required",
        )

    def _make_audit_log(self, undo: AsyncExitStack) -> AuditLog:
        path = self.config.access.audit_file
        if not path:
            return AuditLog(self._clock)
        file = AuditFile(path, self.config.node.id, note=self._stats.note_audit_file)
        undo.callback(file.close)
        return AuditLog(self._clock, file.write)

    def _slewed_clock(self) -> SlewedClock:
        config = self.config.clock
        return SlewedClock(
            self._clock,
            slew_ratio_max=config.slew_percent_max * _PERCENT,
            step_ms_max=config.step_ms_max,
            step_settle_ms=config.step_settle_ms,
            on_step=_log_step,
        )

    def _make_cluster(self, undo: AsyncExitStack, clock: SlewedClock) -> Cluster:
        cluster: Cluster
        if self.config.cluster.nodes:
            cluster = ClusterRuntime(
                self.config,
                self._clock,
                clock,
                self.failure,
                on_snapshot_received=self.renewal.set,
                former_damage=self._former_damage,
            )
        else:
            cluster = StandaloneRuntime(self.config, self._clock, clock, self.failure)
        undo.push_async_callback(cluster.stop)
        return cluster

    async def _open_engine(
        self, undo: AsyncExitStack, disk: RealDisk, meta: NodeMeta, cluster: Cluster
    ) -> Engine:
        begun_ms = self._clock.monotonic_ms()
        place = ShardPlace(disk, f"shard-{FIRST_SHARD}", Identity(meta.cluster_id, FIRST_SHARD))
        guard = DiskGuard(
            disk,
            free_bytes_min=self.config.disk.free_bytes_min,
            reserve_bytes=self.config.disk.reserve_bytes,
            on_change=_log_room,
        )
        opened = await self._open_with_room(place, guard, cluster)
        member = cluster.make_member(opened, guard)
        engine = Engine(
            opened, engine_config(self.config), cluster.time, member, guard, self.failure
        )
        self.engine = engine
        undo.push_async_callback(engine.close)
        await cluster.take_part(engine, undo)
        first_s = FIRST_S if self._former_damage is None else PASS_S_MIN
        scrubbing = Scrubbing(engine, opened, self.failure, self.config.log.scrub_bytes_per_s)
        scrubbing.start(undo, cluster, renew=self._renew, first_s=first_s)
        engine.stats.recovery_seconds = (self._clock.monotonic_ms() - begun_ms) * _SECONDS
        _log_opened(opened, engine.stats.recovery_seconds)
        return engine

    async def _open_with_room(
        self, place: ShardPlace, guard: DiskGuard, cluster: Cluster
    ) -> Opened:
        """Open the shard. Where the disk has no room for that, wait for some.

        The control process of one of several nodes votes meanwhile, which it would not if this
        ended and began again.
        """
        has_complained = False
        while True:
            try:
                # In a thread: replaying may take seconds, and signals must be heard meanwhile.
                config = shard_config(self.config)
                return await asyncio.to_thread(
                    cluster.open_shard, place, config, guard.give_up_reserve
                )
            except errors.DiskFull as error:
                if guard.give_up_reserve():
                    continue
                if not has_complained:
                    _log.error("shard_waits_for_room", **logs.fields_of(error))
                has_complained = True
            await asyncio.sleep(ROOM_LOOK_S)

    def _renew(self, damage: errors.DataLoss) -> None:
        self.damage = damage
        self.renewal.set()

    def _start_probes(self, undo: AsyncExitStack) -> MetricsServer | None:
        """Answer probes from now on, also while the log is recovered: that may take minutes."""
        listen = self.config.node.metrics_listen
        if not listen:
            return None
        loop = asyncio.get_running_loop()
        probes = {
            LIVE: probe_in_loop(loop, lambda: ""),
            STARTUP: probe_in_loop(loop, self._why_not_started),
            READY: probe_in_loop(loop, self._why_not_ready),
        }
        server = MetricsServer(
            listen,
            probes=probes,
            stalls=self._process_stats.stalls,
            tls=self._context_where(self.config.tls.metrics),
            admit=self._make_admit(loop),
        )
        self.metrics_address = server.start()
        # In a thread: it waits for its own, which may wait for the loop.
        undo.push_async_callback(asyncio.to_thread, server.stop)
        return server

    def _make_admit(self, loop: asyncio.AbstractEventLoop) -> Admit | None:
        """Who may read /metrics; None: everybody."""
        section = self.config.access
        if not (section.is_on and section.metrics):
            return None

        async def admit(authorization: str, host: str, path: str) -> HTTPStatus:
            if self._gate is None:
                return HTTPStatus.SERVICE_UNAVAILABLE
            return await self._gate.admit(authorization, host, path)

        return admit_in_loop(loop, admit)

    def _context_where(self, is_wanted: bool) -> Callable[[], ssl.SSLContext | None]:  # noqa: FBT001
        tls = self._tls
        return lambda: tls.context if tls is not None and is_wanted else None

    def _why_not_started(self) -> str:
        return "" if self._api is not None else "the log is not recovered yet"

    def _why_not_ready(self) -> str:
        if self._is_draining:
            return "it stops"
        if self._api is None:
            return self._why_not_started()
        return "" if self._cluster is None else self._cluster.why_not_ready()

    def _watch(self, undo: AsyncExitStack, engine: Engine) -> None:
        """Record from now on what keeps the event loop from its work."""
        self._stats.spans = engine.stats.spans
        meter = ThreadMeter()
        undo.callback(meter.close)
        watch = ProcessWatch(
            engine.stats.spans,
            self._process_stats,
            meter,
            stall_ms=self.config.telemetry.stall_ms,
        )
        watch.start()
        undo.callback(watch.close)

    def _tell_metrics(
        self,
        undo: AsyncExitStack,
        server: MetricsServer | None,
        engine: Engine,
        clock: SlewedClock,
        started_ms: int,
        cluster: Cluster,
    ) -> None:
        if server is None:
            return
        of_cluster = cluster.read_facts if isinstance(cluster, ClusterRuntime) else None
        lag = ConsumerLag(engine.lags, self.config.telemetry.lag_series)
        undo.push_async_callback(lag.close)
        due = DueReading(engine.describe_wheel, engine.now_ms)
        undo.push_async_callback(due.close)
        process = ProcessFacts(self._process_stats, self._last_exit)
        scraping = engine.stats.spans.span("scrape")

        async def read() -> collector.Taken:
            of_groups, of_wheel = await asyncio.gather(lag.read(), due.read())
            with scraping:
                scrape = collector.read_node(
                    engine,
                    self._stats,
                    clock,
                    started_ms,
                    of_groups,
                    of_cluster,
                    due=of_wheel,
                    process=process,
                )
                return collector.take(scrape)

        server.tell(collector.registry(in_loop(asyncio.get_running_loop(), read)))
        undo.callback(server.tell, None)

    async def _start_api(
        self,
        undo: AsyncExitStack,
        engine: Engine,
        started_ms: int,
        cluster: Cluster,
    ) -> None:
        forwarder = served = None
        if isinstance(cluster, ClusterRuntime):
            served = cluster.make_served()
            forwarder = Forwarder(
                cluster.check,
                cluster.make_links(OPTIONS),
                self._stats,
                engine.answers,
                in_flight_max=self.config.limits.forwarded_calls,
            )
            undo.push_async_callback(forwarder.close)
        authenticator = self._make_authenticator(undo, cluster.policies)
        audit = self._make_audit_log(undo)
        self._gate = PortGate(authenticator, cluster.policies.control, audit, self._stats)
        api = ApiServer(
            ServerParts(
                config=self.config,
                engine=engine,
                stats=self._stats,
                clock=self._clock,
                failure=self.failure,
                started_ms=started_ms,
                administration=cluster.make_administration(),
                forwarder=forwarder,
                cluster=served,
                access=cluster.policies.control,
                identify=authenticator.identify,
                tls=self._tls,
                audit=audit,
                quotas=cluster.policies.quotas,
            )
        )
        undo.push_async_callback(api.stop, 0)
        stats = self._stats
        trimming = Trimming(
            lambda: stats.bytes_taken,
            lambda: stats.bytes_in_flight + engine.answers.held_bytes,
        )
        undo.callback(asyncio.create_task(trimming.run()).cancel)
        self.address = await api.start()
        if isinstance(cluster, ClusterRuntime):
            cluster.serve_forwarded(api.peer_handlers())
        self._api = api
        self._stats.anyone_may_call = warn_of_others(self.config)

    def _start_console(self, undo: AsyncExitStack) -> None:
        config = self.config
        if not config.console.listen:
            return
        tls = self._tls
        # Certificates are for the name that clients use.
        address = self.address if tls else reached_at(config.node.listen, self.address)
        console = Console(
            config.console,
            config.node.id,
            address,
            self._clock,
            access=PLAIN if tls is None else tls.access,
            needs_login=config.access.is_on,
            tls=self._context_where(config.tls.console),
        )
        undo.push_async_callback(console.stop)
        try:
            self.console_address = console.start()
        except errors.ConfigError as error:
            # This port is optional: a broker works without its pages.
            if config.console.is_listen_configured:
                raise
            _log.warning("console_not_started", address=config.console.listen, error=error.message)


def _reason_of(error: BaseException) -> str:
    """The typed reason of whatever kept a node from starting."""
    return error.reason if isinstance(error, errors.HourwheelError) else errors.Internal.reason


def _log_opened(opened: Opened, seconds: float) -> None:
    report = opened.shard.log.recovery_report
    if report is not None and report.mark_was_lost:
        _log.warning("flushed_mark_lost")
    if report is not None and report.cut is not None:
        _log.warning("torn_tail_cut", **report.cut._asdict())
    if opened.rebuilt_because:
        _log.warning("views_rebuilt", reason=opened.rebuilt_because)
    _log.info("shard_opened", replayed_batches=opened.replayed_batches, seconds=round(seconds, 3))


def _log_step(event: StepEvent, step_ms: float) -> None:
    _log.warning("wall_clock_stepped", event_kind=event.value, step_ms=round(step_ms))


def _log_room(reason: str, free_bytes: int) -> None:
    if reason:
        _log.error("publishes_refused", reason=reason, free_bytes=free_bytes)
    else:
        _log.info("publishes_accepted", free_bytes=free_bytes)
