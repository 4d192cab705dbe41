"""A small real log, made once; who changes it takes a copy (tests/support/audited.py)."""

import asyncio

import pytest

from tests.support.log_maker import Made, make_log


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("made")
    return asyncio.run(make_log(folder / "node-1", seed=3, rounds=3))
