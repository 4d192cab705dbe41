"""Starts the scrubber of a running node, and hands what it finds damaged to the repair.

damaged piece of the log     another replica's, where there is one
damaged file of a view       built from the log again; else the node copies the master's shard
messages that cannot be read withheld (node/repair)
"""

from collections.abc import Callable
from contextlib import AsyncExitStack

from hourwheel import errors
from node.broker.engine import Engine
from node.cluster.log_repair import LogRepair
from node.cluster.runtime import ClusterRuntime
from node.cluster.standalone import StandaloneRuntime
from node.repair.scrubber import Scrubber, ScrubSinks, ScrubSource
from node.repair.view_repair import ViewRepair
from node.repair.view_scrub import BadMessages
from node.shard.recovery import Opened
from node.telemetry import logs
from node.telemetry.failure import Failure

_log = logs.get(__name__)


class Scrubbing:
    """See the top of this file."""

    def __init__(self, engine: Engine, opened: Opened, failure: Failure, bytes_per_s: int) -> None:
        """`bytes_per_s`: how much is read; 0: nothing is."""
        self._engine, self._opened = engine, opened
        self._failure, self._bytes_per_s = failure, bytes_per_s

    def start(
        self,
        undo: AsyncExitStack,
        cluster: StandaloneRuntime | ClusterRuntime,
        *,
        renew: Callable[[errors.DataLoss], None],
        first_s: float,
    ) -> None:
        """Begin, until `undo`.

        Args:
            undo: ends it.
            cluster: others of it may have what is damaged here.
            renew: called with damage for which the node is to be filled anew.
            first_s: after so long the first pass begins.
        """
        engine, repair = self._engine, None
        if isinstance(cluster, ClusterRuntime):
            repair = cluster.make_repair(engine.damage.files, renew)
            undo.push_async_callback(repair.close)
            engine.damage.on_many = repair.give_up
        if not self._bytes_per_s:
            return
        place, shard = engine.place, engine.shard
        source = ScrubSource(
            place.disk,
            place.identity,
            shard.log,
            lambda: shard.high_watermark,
            directory=place.directory,
            manifest=lambda: self._opened.maintenance.manifest,
        )
        scrubber = Scrubber(
            source,
            engine.stats,
            self._failure,
            bytes_per_s=self._bytes_per_s,
            sinks=self._sinks(repair),
            now_ms=engine.now_ms,
            first_s=first_s,
        )
        if repair is not None:
            repair.on_mended = scrubber.on_mended
        undo.push_async_callback(scrubber.close)

    def _sinks(self, repair: LogRepair | None) -> ScrubSinks:
        engine = self._engine
        views = ViewRepair(
            engine.shard,
            self._opened.epochs,
            self._failure,
            save_soon=engine.background.save_soon,
            fail=engine.fail,
            give_up=None if repair is None else repair.give_up,
        )

        def on_log(error: errors.CorruptLog) -> None:
            _log.error("scrub_damage_found", **logs.fields_of(error))
            if repair is not None:
                repair.on_damage(error)

        def on_view(error: errors.CorruptFile) -> None:
            _log.error("scrub_damage_found", **logs.fields_of(error))
            views.on_damage(error)

        def on_messages(found: BadMessages) -> None:
            engine.damage.take_scrubbed(*found, engine.now_ms())

        return ScrubSinks(on_log, on_view, on_messages)
