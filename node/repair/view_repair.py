"""Repairs a damaged file of the views that the scrubber found before any read did.

checkpoint, epochs, tail of the sequences    written anew: the process knows what belongs there
the key index                                built again, by the next life of the process
others, in a cluster                         another node leads, and this one copies its shard
others, alone, and the log is whole          the views are built again from it
others, alone, and the log is trimmed        the log says so, again and again: no node has them
"""

from collections.abc import Callable

from hourwheel import errors
from node.shard.checkpoint import MANIFEST
from node.shard.shard import Shard
from node.shard.view_check import EPOCHS, TAIL
from node.telemetry import logs
from node.telemetry.failure import Failure
from storage.log.epochs import EpochFile

_log = logs.get(__name__)


class ViewRepair:
    """See the top of this file. On the event loop's thread."""

    def __init__(
        self,
        shard: Shard,
        epochs: EpochFile,
        failure: Failure,
        *,
        save_soon: Callable[[], None],
        fail: Callable[[errors.CorruptFile], None],
        give_up: Callable[[errors.DataLoss], None] | None,
    ) -> None:
        """Nothing is damaged yet.

        Args:
            shard: whose views these are.
            epochs: its epochs.
            failure: takes a bug.
            save_soon: writes a checkpoint, whether much has changed or not.
            fail: ends the process, or this life of it: what comes next builds its views anew.
            give_up: has another node lead, and this one filled anew; None: there are no others.
        """
        self._shard, self._epochs, self._failure = shard, epochs, failure
        self._save_soon, self._fail, self._give_up = save_soon, fail, give_up

    def on_damage(self, error: errors.CorruptFile) -> None:
        """A file of the views is damaged: `error` names it."""
        with self._failure.catching():
            self._see_to(str(error.params["file"]), error)

    def _see_to(self, path: str, error: errors.CorruptFile) -> None:
        shard = self._shard
        if path.endswith(f"/{EPOCHS}"):
            try:
                self._epochs.renew()
            except errors.DiskFull as full:
                _log.error("file_repair_postponed", **logs.fields_of(full))
        elif path.endswith((f"/{MANIFEST}", f"/{TAIL}")):
            shard.views.sequences.renew_tail()
            self._save_soon()
        elif "/keys/" in path:
            self._fail(error)
        elif self._give_up is not None:
            self._give_up(error)
        elif not shard.log.start_offset:
            self._fail(error)
        else:
            _log.error("view_damage_unrepairable", **logs.fields_of(error))
