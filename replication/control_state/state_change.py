"""From one control state to the next in a message that is as long as what has changed. Pure.

A state with thousands of topics is megabytes, and a broker gets each change: whole states
would make each command dearer by what is there already.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from hourwheel.internal.v1 import control_link_pb2 as link
from replication.control_state.access import AccessState
from replication.control_state.state import ControlState, NamedObject, copy_of, state_data, state_of


def whole(state: ControlState) -> link.LinkState:
    """A state for somebody who knows none."""
    return link.LinkState(state=state_data(state, with_remembered=False))


def change_of(old: ControlState, new: ControlState) -> link.LinkState:
    """What makes `new` of `old`; remembered results apart."""
    topics, deleted_topics = _difference(old.topics, new.topics, old.revision)
    groups, deleted_groups = _difference(old.groups, new.groups, old.revision)
    access = AccessState() if new.access.version == old.access.version else new.access
    shown = replace(new, topics=topics, groups=groups, access=access)
    change = link.LinkStateChange(deleted_topics=deleted_topics, deleted_groups=deleted_groups)
    return link.LinkState(state=state_data(shown, with_remembered=False), change=change)


def state_after(old: ControlState, said: link.LinkState) -> ControlState:
    """The state that `said` makes of `old`.

    Raises:
        IncompatibleFormat: its rules are not known to this code.
    """
    new = state_of(said.state)
    if not said.HasField("change"):
        return new
    return replace(
        new,
        topics=_merged(old.topics, new.topics, said.change.deleted_topics),
        groups=_merged(old.groups, new.groups, said.change.deleted_groups),
        access=new.access if said.state.HasField("access") else old.access,
    )


def _difference(
    old: Mapping[str, NamedObject], new: Mapping[str, NamedObject], revision: int
) -> tuple[Mapping[str, NamedObject], list[str]]:
    """What `new` has of later than `revision`, which `old` has; and names that only `old` has."""
    if old is new:
        return {}, []
    changed = {one.name: one for one in new.values() if one.version > revision}
    added_count = sum(name not in old for name in changed)
    if len(old) + added_count == len(new):
        return changed, []
    return changed, [name for name in old if name not in new]


def _merged(
    old: Mapping[str, NamedObject], changed: Mapping[str, NamedObject], deleted: Sequence[str]
) -> Mapping[str, NamedObject]:
    if not changed and not deleted:
        return old
    merged = copy_of(old)
    merged.update(changed)
    for name in deleted:
        del merged[name]
    return MappingProxyType(merged)
