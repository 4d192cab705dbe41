"""Bulk scheduling into a real node with TLS and access control: as somebody, or not at all."""

import asyncio
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from hourwheel import Admin, errors
from hourwheel.transport.access import Tls
from hourwheel.transport.access_files import AccessFiles
from node.access.user_secrets import hash_of
from node.process.subprocess_node import ChildNode
from spark_jobs.schedule.bulk import schedule
from spark_jobs.schedule.source import register
from tests.support.certificates import Authority, tls_section

DUE_MS = 4_000_000_000


class Secure:
    """A node, the files of a user who may publish to `orders`, and who administers it."""

    def __init__(self, address: str, folder: Path, ca: Path) -> None:
        self.address, self.ca = address, ca
        login = folder / "shop.login"
        login.write_text("shop:of shop\n")
        self.files = AccessFiles(tls_ca=str(ca), login_file=str(login))
        self.wrong = folder / "wrong.login"
        self.wrong.write_text("shop:guessed\n")

    def admin(self) -> Admin:
        return Admin(self.address, tls=Tls(self.ca), user=("root", "of root"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("secure")
    authority = Authority(folder)
    issued = authority.issue("node", "127.0.0.1", "localhost")
    users = folder / "users"
    users.write_text(f"root:{hash_of('of root')}\nshop:{hash_of('of shop')}\n")
    values = {
        "access": {"is_on": True, "administrators": "root"},
        "authentication": {"users_file": str(users)},
        "tls": tls_section(issued, authority_file=str(authority.file)),
        "node": {"metrics_listen": ""},
    }
    with asyncio.Runner() as runner:
        child = ChildNode(folder / "data", values, log_file=folder / "log")
        runner.run(child.__aenter__())
        try:
            secure = Secure(child.address, folder, authority.file)
            with secure.admin() as admin:
                admin.create_topic("orders")
                admin.grant("shop", ["publish"], "topic", "orders")
            yield secure
        finally:
            runner.run(child.__aexit__(None, None, None))


def rows(spark: SparkSession, topic: str, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).select(
        f.lit(b"x").alias("body"), f.lit(topic).alias("topic"), f.lit(DUE_MS).alias("delay_ms")
    )


def pending(node: Secure) -> int:
    with node.admin() as admin:
        return admin.status().shards[0].pending_count


def test_rows_are_scheduled_as_the_user_whose_files_are_given(
    spark: SparkSession, node: Secure, tmp_path: Path
) -> None:
    before = pending(node)
    done = schedule(
        rows(spark, "orders", 300),
        server=node.address,
        job="by-call",
        ledger=str(tmp_path),
        access_files=node.files,
    )
    assert (done.scheduled, done.is_complete) == (300, True)
    register(spark)
    given = {name: value for name, value in asdict(node.files).items() if value}
    writer = rows(spark, "orders", 200).write.format("hourwheel.schedule").mode("append")
    writer.options(server=node.address, job="by-source", ledger=str(tmp_path), **given).save()
    assert pending(node) - before == 500
    texts = [one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()]
    assert texts
    assert not any(b"of shop" in text for text in texts), "no secret is in the ledger"


def test_who_is_not_known_and_who_may_not_schedule_nothing(
    spark: SparkSession, node: Secure, tmp_path: Path
) -> None:
    before = pending(node)
    for files, expected in (
        (replace(node.files, login_file=""), errors.PermissionDenied),
        (replace(node.files, login_file=str(node.wrong)), errors.Unauthenticated),
        (replace(node.files, login_file=str(tmp_path / "missing")), errors.ConfigError),
    ):
        with pytest.raises(expected):
            schedule(
                rows(spark, "orders", 10),
                server=node.address,
                job="stranger",
                ledger=str(tmp_path),
                access_files=files,
            )
    done = schedule(
        rows(spark, "payroll", 10),
        server=node.address,
        job="not-ours",
        ledger=str(tmp_path),
        access_files=node.files,
    )
    assert (done.scheduled, done.refused) == (0, 10)
    assert done.reasons == {"PERMISSION_DENIED": 10}
    assert pending(node) == before
