"""Which event loop a process runs on."""

import asyncio
import sys
from types import SimpleNamespace

import pytest

from hourwheel import errors
from hourwheel.event_loops import loop_factory


def test_event_loop_is_asyncios_when_uvloop_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert loop_factory("asyncio") is None
    assert loop_factory("auto") is None
    with pytest.raises(errors.ConfigError, match=r"node\.event_loop"):
        loop_factory("uvloop")


def test_event_loop_is_uvloops_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    there = SimpleNamespace(new_event_loop=asyncio.new_event_loop)
    monkeypatch.setitem(sys.modules, "uvloop", there)
    assert loop_factory("auto") is asyncio.new_event_loop
    assert loop_factory("uvloop") is asyncio.new_event_loop
    assert loop_factory("asyncio") is None
