"""One Spark session for all tests of this folder: starting one takes seconds. And a small log."""

import asyncio
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_jobs.session import FAST, build_session
from tests.support.log_maker import Made, make_log


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores of this machine; a task may fail twice before its job does."""
    session = build_session("tests", master="local[2,3]", settings=FAST)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A real log; who changes it takes a copy."""
    return asyncio.run(make_log(tmp_path_factory.mktemp("made") / "node-1", seed=3, rounds=3))
