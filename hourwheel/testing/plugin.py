"""Fixtures for pytest, which finds them by the entry point of this package."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hourwheel.testing.broker import Broker
    from hourwheel.testing.clock import Clock


@pytest.fixture
def hourwheel_broker(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> "Iterator[Broker]":
    """A broker of this test alone, empty, whose clock only the test moves.

    Apps and clients that read HOURWHEEL_SERVER find it.
    """
    # Imported here: a run of tests that asks for no broker pays nothing for it.
    from hourwheel.testing.broker import Broker  # noqa: PLC0415
    from hourwheel.workers.app import SERVER_VARIABLE  # noqa: PLC0415

    with Broker(tmp_path_factory.mktemp("hourwheel")) as broker:
        monkeypatch.setenv(SERVER_VARIABLE, broker.server)
        yield broker


@pytest.fixture
def hourwheel_clock(hourwheel_broker: "Broker") -> "Clock":
    """The clock of this test's broker."""
    return hourwheel_broker.clock
