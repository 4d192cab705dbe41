"""kombu's own integration tests, at a node: `test_own_suites.py` runs them.

They are in kombu's sources (`t/integration/common.py`), as classes that know no transport.
"""

import os
import uuid
from importlib import import_module
from typing import Any, Final

import pytest
from kombu import Connection

import hourwheel.integrations.kombu as _registers  # noqa: F401

_NOBODY: Final = "hourwheel://127.0.0.1:1"
_SERVER: Final = os.environ["SERVER"]
_common: Final = import_module("t.integration.common")


def _tests_of(name: str) -> Any:
    return type(f"Test{name}", (getattr(_common, f"Base{name}"),), {})


TestBasic = type("TestBasic", (_common.BasicFunctionality,), {})
TestEventLoop = _tests_of("EventLoop")
TestExchangeTypes = _tests_of("ExchangeTypes")
TestFailover = _tests_of("Failover")
TestMessage = _tests_of("Message")
TestPriority = _tests_of("Priority")
TestTimeToLive = _tests_of("TimeToLive")


@pytest.fixture
def connection() -> Connection:
    return Connection(f"hourwheel://{_SERVER}/{uuid.uuid4().hex}")


@pytest.fixture
def invalid_connection() -> Connection:
    return Connection(_NOBODY, connect_timeout=0.2)


@pytest.fixture
def failover_connection() -> Connection:
    return Connection(f"{_NOBODY};hourwheel://{_SERVER}")
