"""Who decides about topics and groups: first the log alone, then the control state (decision 0058).

    the log alone   no control state that can: the master makes the CONFIG record
    to be imported  it can, and does not know yet what the log has: changes wait for that
    controlled      a change is a command; its CONFIG record follows when the new state is known

    call --> command --> control state --> missing CONFIG records --> log --> answer

The second one ends with the import: all that the log has, as of a moment at which nothing else is
on its way; then comes the record `adopt_control_state`, behind which apply refuses what the log
alone decides.
Whichever of these a crash or another master meets: what the log has and what the state says are
compared as a whole at each takeover, and what is missing is appended before anything is served.

The cluster's own topics and subscriptions are the log's in all three.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from hourwheel import errors
from hourwheel.errors import HourwheelError
from hourwheel.internal.v1 import control_pb2 as wire
from hourwheel.types import NO_EPOCH, Epoch, GroupId, ShardId
from node.catalog import control_items
from node.catalog.changes import with_first_new_topic
from node.catalog.command_batches import CommandBatches
from node.catalog.control_items import Missing, missing_between, missing_of
from node.catalog.log_changes import Applied, LogChanges
from node.catalog.serving import Serving
from node.contracts.control import CatalogControl
from node.shard.views import CONTROL_LEVEL
from node.telemetry import logs
from replication.control_state.catalog_commands import CATALOG_RULES
from replication.control_state.state import ControlState
from storage.views.catalog import Catalog
from storage.views.catalog_items import Group, Subscription, Topic
from storage.views.catalog_names import dead_letter_topic_name

WAIT_S: Final = 3.0
"""A change that the control plane has made, and this node has not heard of, is given up then."""
APPENDED_AT_ONCE: Final = 32
"""Changes that one turn of the loop appends: a millisecond or two."""
DELETED_AT_ONCE: Final = 32
"""Subscriptions that one record may take with it: a millisecond or two when it is applied."""
AGAIN_S: Final = 0.5
"""After so long a command whose outcome is unknown is proposed again."""
_STEP: Final = object()
_END: Final = object()
_log = logs.get(__name__)


class CatalogOwner:
    """See the top of this file. Of one mastership, on the event loop's thread.

    Invariant: `_logged` is a state of which all topics and groups are appended.
    """

    def __init__(
        self,
        serving: Serving,
        log: LogChanges,
        lock: asyncio.Lock,
        control: CatalogControl | None,
        drop_group: Callable[[GroupId], None],
    ) -> None:
        """Nothing is proposed before `resume`.

        `lock` is held by changes of more than one thing, here the import. `drop_group`: a
        group is deleted, and what this master has of it can go.
        """
        self._serving, self._log, self._lock, self._control = serving, log, lock, control
        self._shard, self._drop_group = serving.mastership.shard, drop_group
        self._batches = None if control is None else CommandBatches(control)
        self._logged: ControlState | None = None
        self._steps: Iterator[object] | None = None
        """Of what is being appended, over several turns."""
        self._target: ControlState | None = None
        """What the log has when they end."""
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        """Appends."""
        self._importing: asyncio.Task[None] | None = None
        """The import that no call asked for."""
        self._is_closed = False
        if control is not None:
            control.listen(self._on_change)

    @property
    def _catalog(self) -> Catalog:
        return self._log.catalog

    # -- who decides ------------------------------------------------------------------------------

    @property
    def _state(self) -> ControlState | None:
        return None if self._control is None else self._control.state

    @property
    def is_log_alone(self) -> bool:
        """Whether the log decides. Once that is over, it is for good."""
        state = self._state
        can_import = (
            state is not None
            and state.codec_version >= CATALOG_RULES
            and self._shard.views.feature_level >= CONTROL_LEVEL
        )
        return not can_import and not self._log.is_controlled

    @property
    def control_rules(self) -> int:
        """By which the control state decides; 0: the log alone does."""
        return 0 if self.is_log_alone or self._state is None else self._state.codec_version

    @property
    def is_ready(self) -> bool:
        """Whether a change can be made without waiting for anything before."""
        return self.is_log_alone or (
            self._is_controlled and self._logged is not None and self._logged is self._state
        )

    @property
    def _is_controlled(self) -> bool:
        return self._log.is_controlled and self._is_imported

    @property
    def _is_imported(self) -> bool:
        return self._state is not None and self._state.catalog_import.is_done

    async def make_ready(self) -> None:
        """Return when the owner knows all that there is. The caller has the lock.

        Raises:
            Unavailable, NotMaster, ShuttingDown: it does not come to that for now.
        """
        if self.is_ready:
            return
        if not self._is_imported:
            await self._import()
        if not self._log.is_controlled:
            self._adopt()
        await self.logged(errors.required(self._state, "it is imported").revision)

    # -- turns ------------------------------------------------------------------------------------

    def resume(self) -> None:
        """This node may act, for the first time or again: before anything is answered."""
        if self._is_closed or self._state is None or self.is_log_alone:
            return
        if self._is_imported:
            if not self._log.is_controlled:
                self._adopt()
            self._catch_up()
        elif self._importing is None and (
            self._log.is_controlled or self._catalog.has_used_numbers
        ):
            loop = asyncio.get_running_loop()
            self._importing = loop.create_task(self._import_beside())

    def _on_change(self) -> None:
        """There is a new control state."""
        try:
            self._serving.check()
        except HourwheelError:
            return  # `resume` comes when it may act, if it ever may
        self.resume()
        self._tell()

    def close(self, error: HourwheelError) -> None:
        """The mastership is over."""
        self._is_closed = True
        if self._control is not None:
            self._control.listen(None)
        if self._batches is not None:
            self._batches.close(error)
        for task in (self._task, self._importing):
            if task is not None:
                task.cancel()
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)

    async def _until(self, is_so: Callable[[], bool], wait_s: float | None = WAIT_S) -> None:
        """Return when it is so. Raises Unavailable where that takes too long; NotMaster."""
        if is_so():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((is_so, future))
        try:
            async with asyncio.timeout(wait_s):
                await future
        except TimeoutError:
            raise errors.Unavailable("this node has not heard of the change yet") from None
        finally:
            self._waiting = [one for one in self._waiting if one[1] is not future]

    def _tell(self) -> None:
        for is_so, future in list(self._waiting):
            if not future.done() and is_so():
                future.set_result(None)

    # -- import -----------------------------------------------------------------------------------

    async def _import_beside(self) -> None:
        try:
            async with self._lock:
                await self.make_ready()
        except errors.Internal as error:  # a bug, also one that a batch of commands tells of
            self._serving.fail(error)
        except HourwheelError as error:  # another time: `resume` comes again
            _log.info("catalog_import_failed", reason=str(error))
            await asyncio.sleep(AGAIN_S)
        except Exception as error:  # noqa: BLE001 - a bug: the process must end, and say why
            self._serving.fail(errors.Internal(repr(error)))
        finally:
            self._importing = None

    async def _import(self) -> None:
        """Have the control state begin with what the log has. Nothing else is on its way.

        It begins anew wherever another attempt got to.
        """
        control = self._control
        if control is None or self.is_log_alone:
            raise errors.Unavailable("the control plane cannot decide about topics and groups yet")
        await self._log.settle()
        commands = control_items.import_commands(
            self._catalog, ShardId(self._shard.shard_id), self._epoch, self._log.next_version()
        )
        for one in commands:
            try:
                result = await self._propose(wire.ControlCommand(import_catalog=one))
            except errors.Timeout as error:
                raise errors.Unavailable("the control plane has no leader; try again") from error
            if self._is_imported:
                break  # an earlier attempt has come through after all
            if result.outcome != wire.CONTROL_OUTCOME_OK:
                raise errors.Unavailable(f"topics and groups were not imported: {result.reason}")
        await self._until(lambda: self._is_imported)
        _log.info("catalog_imported", pieces=len(commands), epoch=self._serving.mastership.epoch)

    @property
    def _epoch(self) -> Epoch:
        """Of this mastership, as the control state knows it."""
        is_alone = self._control is not None and self._control.is_alone
        return NO_EPOCH if is_alone else self._serving.mastership.epoch

    def _adopt(self) -> None:
        state = errors.required(self._state, "there is a state to adopt")
        self._watch(self._log.adopt(state.revision))
        self._logged = None
        self._catch_up()

    # -- the log follows the control state --------------------------------------------------------

    def _catch_up(self) -> None:
        """Append what the log has not of the state; where it cannot be, another time."""
        try:
            while (state := self._lacking) is not None:
                missing = (
                    missing_of(state, self._catalog)
                    if self._logged is None
                    else missing_between(self._logged, state)
                )
                self._steps, self._target = self._append(missing), state
                if not self._go_on():
                    loop = asyncio.get_running_loop()
                    self._task = loop.create_task(self._append_beside())
        except (errors.NotMaster, errors.ShuttingDown):
            self._start_again()  # `resume` comes, if it ever may act again
        except Exception as error:  # noqa: BLE001 - a bug: the process must end, and say why
            self._serving.fail(errors.Internal(repr(error)))
        self._tell()

    @property
    def _lacking(self) -> ControlState | None:
        """The state that the log has not all of, while none is appending; None: there is none."""
        if self._is_closed or not self._is_controlled or self._steps is not None:
            return None
        return None if self._logged is self._state else self._state

    def _go_on(self) -> bool:
        """Append some; whether that was all. Raises NotMaster, ShuttingDown."""
        steps = errors.required(self._steps, "something is to be appended")
        for _ in range(APPENDED_AT_ONCE):
            if next(steps, _END) is _END:
                self._logged, self._steps = self._target, None
                return True
        return False

    async def _append_beside(self) -> None:
        try:
            while self._steps is not None and not self._go_on():  # noqa: ASYNC110 - turns
                await asyncio.sleep(0)
            self._catch_up()
        except (errors.NotMaster, errors.ShuttingDown):
            self._start_again()
        except Exception as error:  # noqa: BLE001 - a bug: the process must end, and say why
            self._serving.fail(errors.Internal(repr(error)))

    def _start_again(self) -> None:
        """What the log has is to be compared as a whole."""
        self._logged = self._steps = None

    def _watch(self, change: "asyncio.Future[bool]") -> None:
        """One that does not come into the log is missing again."""

        def look(done: Applied) -> None:
            if done.cancelled() or done.exception() is not None:
                self._start_again()
            elif not done.result():
                _log.warning("catalog_change_rejected")

        change.add_done_callback(look)

    def _append(self, missing: Missing) -> Iterator[object]:
        log, revision = self._log, missing.revision
        for topic_id in missing.gone_topics:
            log.note_deleting(topic_id)  # now: nothing more is taken for it
        for topic_id in missing.gone_topics:
            yield from self._delete_many(self._catalog.subscriptions_to(topic_id))
            self._watch(log.delete_topic(topic_id, revision))
            yield _STEP
        for group_id in missing.gone_groups:
            yield from self._delete_many(self._catalog.subscriptions_of(group_id))
            deleting = log.delete_group(group_id, revision)
            deleting.add_done_callback(partial(self._let_go, group_id))
            self._watch(deleting)
            yield _STEP
        for topic in missing.topics:
            self._watch(log.put_topic(control_items.topic_of(topic), revision))
            yield _STEP
        for group in missing.groups:
            letters, _ = log.own_topic(dead_letter_topic_name(group.name))
            self._watch(log.put_group(control_items.group_of(group, letters.topic_id), revision))
            yield _STEP

    def _let_go(self, group_id: GroupId, _: "asyncio.Future[bool]") -> None:
        self._drop_group(group_id)

    def _delete_many(self, subscriptions: list[Subscription]) -> Iterator[object]:
        """Delete subscriptions one by one, where they are too many for one record.

        What one record deletes is applied in one turn of the loop.
        """
        if len(subscriptions) > DELETED_AT_ONCE:
            for one in subscriptions:
                self._watch(self._log.delete_topic(one.retry_topic_id))
                yield _STEP

    # -- changes ----------------------------------------------------------------------------------

    async def _propose(self, command: wire.ControlCommand) -> wire.ControlResult:
        batches = errors.required(self._batches, "there is a control plane")
        return await batches.propose(command)

    async def _decided(self, command: wire.ControlCommand) -> wire.ControlResult:
        """What a command answers, when the log has all that it changed.

        Raises:
            Unavailable: somebody else has changed it meanwhile; it was not done.
            FailedPrecondition: the control plane cannot have it.
            Timeout: the outcome is unknown.
        """
        result = await self._propose(command)
        check_result(result)
        await self.logged(result.revision)
        return result

    async def logged(self, revision: int) -> None:
        """Return when all that the control state had by then is appended."""
        await self._until(lambda: self.revision >= revision)

    @property
    def revision(self) -> int:
        """Of the state that the log has; 0 where the log is alone."""
        return 0 if self._logged is None else self._logged.revision

    async def make_topic(self, topic: Topic) -> None:
        """Return when a topic exists, made by this call or by a concurrent one, and the log has it.

        What is appended after that may use it.

        Raises:
            Unavailable: it is not there for now, and was not used.
        """
        settings = control_items.topic_settings(topic)
        put = wire.PutObjectCommand(name=topic.name, settings=settings)
        try:
            result = await self._propose(wire.ControlCommand(put_topic=put))
        except errors.Timeout as error:
            raise errors.Unavailable(
                f"topic {topic.name!r} is not there, and no topic can be made while the control"
                " plane has no leader; try again",
                topic=topic.name,
            ) from error
        if not result.object_id:
            check_result(result)
        await self.logged(result.revision)

    async def put_topic(self, topic: Topic, old: Topic | None) -> Topic:
        """Make a topic, or change `old`; as it is applied.

        Raises:
            Unavailable: somebody else changed or deleted it meanwhile.
        """
        _, applying = await self.add_topic(topic, old)
        await asyncio.gather(*applying)
        found = self._catalog.find_topic(topic.name)
        if found is None:
            raise gone()
        return found

    async def add_topic(
        self, topic: Topic, old: Topic | None
    ) -> tuple[Topic, list["asyncio.Future[bool]"]]:
        """As `put_topic`, when it is appended: it may be used behind that.

        What is still to be applied is returned as well.
        """
        log = self._log
        if self.is_log_alone:
            number = log.next_topic_id() if old is None else old.topic_id
            changed = replace(topic, topic_id=number, version=log.next_version())
            return changed, [log.put_topic(changed)]
        put = wire.PutObjectCommand(
            name=topic.name,
            settings=control_items.topic_settings(topic),
            expected_version=0 if old is None else old.version,
        )
        await self._decided(wire.ControlCommand(put_topic=put))
        found = log.find_topic(topic.name)
        if found is None:
            raise gone()
        return found, log.in_flight()

    async def put_group(self, group: Group, old: Group | None) -> tuple[Group, list[Applied]]:
        """Make a group, or change `old`, with its topic for dead letters, in one group commit.

        It is appended: it may be used behind that. What is still to be applied is returned as well.
        """
        log = self._log
        group = with_first_new_topic(group, old, log.next_topic_id())
        if not self.is_log_alone:
            put = wire.PutObjectCommand(
                name=group.name,
                settings=control_items.group_settings(group),
                expected_version=0 if old is None else old.version,
            )
            await self._decided(wire.ControlCommand(put_group=put))
            found = log.find_group(group.name)
            if found is None:
                raise gone()
            return found, log.in_flight()
        letters, made = log.own_topic(dead_letter_topic_name(group.name))
        number = log.next_group_id() if old is None else old.group_id
        changed = replace(
            group,
            group_id=number,
            dead_letter_topic_id=letters.topic_id,
            version=log.next_version(),
        )
        return changed, [*made, log.put_group(changed)]

    async def delete_topic(self, topic: Topic) -> None:
        """Delete a topic, with what has no use without it."""
        if self.is_log_alone or topic.internal:
            await self._delete_many_now(self._catalog.subscriptions_to(topic.topic_id))
            await self._log.delete_topic(topic.topic_id)
            return
        gone = wire.DeleteObjectCommand(name=topic.name, expected_version=topic.version)
        await self._decided(wire.ControlCommand(delete_topic=gone))
        await self._log.settle()

    async def delete_group(self, group: Group) -> None:
        """Delete a group with its subscriptions; its topic for dead letters stays."""
        if self.is_log_alone:
            await self._delete_many_now(self._catalog.subscriptions_of(group.group_id))
            await self._log.delete_group(group.group_id)
            self._drop_group(group.group_id)
            return
        gone = wire.DeleteObjectCommand(name=group.name, expected_version=group.version)
        await self._decided(wire.ControlCommand(delete_group=gone))
        await self._log.settle()

    async def expire(self, one: Topic | Group) -> bool:
        """Delete what was found unused; whether that was done.

        It may not be used before this returns: until then it is unknown whether it is there.
        """
        is_topic = isinstance(one, Topic)
        if self.is_log_alone:
            await (self.delete_topic(one) if isinstance(one, Topic) else self.delete_group(one))
            return True
        expired = wire.ExpireObjectCommand(
            name=one.name,
            expected_version=one.version,
            shard=self._shard.shard_id,
            epoch=self._epoch,
        )
        command = (
            wire.ControlCommand(expire_topic=expired)
            if is_topic
            else wire.ControlCommand(expire_group=expired)
        )
        result = await self._outcome_of(command)
        await self._until(lambda: self.revision >= result.revision, wait_s=None)
        await self._log.settle()
        find = self._catalog.find_topic if is_topic else self._catalog.find_group
        return find(one.name) is None

    async def _outcome_of(self, command: wire.ControlCommand) -> wire.ControlResult:
        """What became of a command, however long it takes to know. Raises Unavailable."""
        control = errors.required(self._control, "there is a control plane")
        command.request_id = control.new_request_id()
        while not self._is_closed:
            try:
                return await control.propose(command)
            except errors.Timeout:  # it may come true at any time
                await asyncio.sleep(AGAIN_S)
        raise errors.Unavailable("the mastership is over")

    async def _delete_many_now(self, subscriptions: list[Subscription]) -> None:
        """As `_delete_many`. If this ends early, some are gone, and the caller calls again."""
        if len(subscriptions) <= DELETED_AT_ONCE:
            return
        for first in range(0, len(subscriptions), DELETED_AT_ONCE):
            piece = subscriptions[first : first + DELETED_AT_ONCE]
            await asyncio.gather(*(self._log.delete_topic(one.retry_topic_id) for one in piece))


def check_result(result: wire.ControlResult) -> None:
    """Raises what keeps a command from having been applied."""
    if result.outcome == wire.CONTROL_OUTCOME_OK:
        return
    if result.outcome == wire.CONTROL_OUTCOME_REFUSED:
        raise errors.FailedPrecondition(result.reason)
    raise errors.Unavailable(f"it was changed meanwhile ({result.reason}); try again")


def gone() -> errors.Unavailable:
    """What was to be changed is there no more."""
    return errors.Unavailable("the topic or group was deleted meanwhile; try again")
