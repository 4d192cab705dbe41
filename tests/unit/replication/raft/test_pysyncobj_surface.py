"""The private names of PySyncObj that we rely on are where they were: each is looked up by name."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pysyncobj.syncobj
import pytest
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from replication.raft import pysyncobj_surface as surface


@pytest.fixture(scope="module")
def stock() -> Iterator[SyncObj]:
    """PySyncObj as it is installed, without anything of ours but how it is configured."""
    conf = SyncObjConf(autoTick=False, appendEntriesUseBatch=False)
    node = SyncObj(Node("a"), [], conf, transport=Transport(None, None, []))
    yield node
    node.destroy()


def parameters(method: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(method).parameters)[1:]


@pytest.mark.parametrize("name", surface.FIELDS)
def test_field_is_there(name: str, stock: SyncObj) -> None:
    assert name in vars(stock), f"PySyncObj {surface.VERSION} has no {name}"


@pytest.mark.parametrize("name", surface.PIPE_FIELDS)
def test_field_of_the_pipe_is_there(name: str, stock: SyncObj) -> None:
    pipe = vars(stock)["_SyncObj__pipeNotifier"]
    assert name in vars(pipe), f"PySyncObj {surface.VERSION} has no {name}"


def test_clock_is_there(stock: SyncObj) -> None:
    now_s = getattr(pysyncobj.syncobj, surface.CLOCK)()
    deadline_s = vars(stock)["_SyncObj__raftElectionDeadline"]
    assert abs(deadline_s - now_s) < 3_600, "deadlines are of this clock, in seconds"


@pytest.mark.parametrize("name", surface.METHODS)
def test_method_takes_what_it_took(name: str) -> None:
    assert parameters(vars(SyncObj)[name]) == surface.METHODS[name]


@pytest.mark.parametrize("name", surface.TRANSPORT_METHODS)
def test_method_of_the_transport_takes_what_it_took(name: str) -> None:
    assert parameters(vars(Transport)[name]) == surface.TRANSPORT_METHODS[name]


def test_every_private_name_in_the_code_is_listed() -> None:
    """What the module uses and does not list would move unnoticed."""
    listed = {*surface.FIELDS, *surface.METHODS}
    used = {
        name
        for each in vars(surface.PrivateSyncObj).values()
        if inspect.isfunction(each)
        for name in (each.__name__, *each.__code__.co_names)
        if name.startswith("_SyncObj__")
    }
    assert used - listed == set()
    assert {name for name in listed if name.startswith("_SyncObj__")} - used == set()
