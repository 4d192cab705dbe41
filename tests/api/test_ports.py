"""The engine's port: who plays it, and how a failure is told."""

from hourwheel import errors
from node.contracts.broker import EnginePort
from node.telemetry.failure import Failure
from tests.support.fake_engine import FakeEngine


def methods_of(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_fake_engine_has_all_that_the_port_names() -> None:
    assert methods_of(EnginePort) <= methods_of(FakeEngine)


async def test_failure_keeps_the_first_error_when_several_are_reported() -> None:
    failure = Failure()
    first = errors.FsyncFailed("first")
    failure.report(first)
    failure.report(errors.InvariantViolated("second"))
    assert failure.found.result() is first
