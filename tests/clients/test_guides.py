"""What stands in docs/guides: the programs about migrating, at a real node and stand-ins for what
others move away from; configurations, and how certificates are made."""

import re
import subprocess
import textwrap
import tomllib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
import yaml
from cryptography import x509

from hourwheel import AsyncAdmin, Consumer, MessageState, Producer
from hourwheel.clock import SystemClock
from hourwheel.gateway.settings import read_settings
from hourwheel.webhooks.settings import read_push_settings
from node.config.model import NodeConfig
from node.process.subprocess_node import ChildNode
from replication.raft.security import with_certificates
from tests.support import toolchains
from tests.support.guide_commands import commands_of, fenced
from tests.tidy import tree

PAGE: Final = "docs/guides/migrating.md"
LONG_AGO_S: Final = 1_000_000_000
"""A score of Redis that is past: its message is due at once."""


class Enough(Exception):
    """Ends a program that runs for ever."""


def program(heading: str) -> SimpleNamespace:
    """What the code below a heading of the page defines."""
    section = tree.text(PAGE).split(f"\n## {heading}")[1].split("\n## ")[0]
    (code,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = {}
    exec(compile(code, PAGE, "exec"), found)
    return SimpleNamespace(**found)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ChildNode]:
    async with ChildNode(tmp_path / "data", log_file=tmp_path / "node.log") as found:
        yield found


@pytest.fixture
def server(node: ChildNode) -> str:
    return node.address


class App:
    """As much of Celery's application as the program uses."""

    def __init__(self, *scheduled: dict[str, Any], enough: int = 0) -> None:
        self.control = self
        self.sent: list[tuple[str, list[Any], str]] = []
        self.revoked: list[str] = []
        self._scheduled, self._enough = list(scheduled), enough

    def send_task(self, name: str, *, args: list[Any], task_id: str) -> None:
        self.sent.append((name, args, task_id))
        if len(self.sent) > self._enough:
            raise Enough

    def inspect(self) -> Any:
        found = {"worker@host": self._scheduled} if self._scheduled else None
        return SimpleNamespace(scheduled=lambda: found)

    def revoke(self, task_id: str) -> None:
        self.revoked.append(task_id)


async def test_celery_gets_tasks_when_they_are_due(server: str) -> None:
    ours = program("From Celery")
    due = datetime.fromtimestamp(SystemClock().wall_ms() / 1_000, UTC) + timedelta(seconds=0.05)
    eta = due.isoformat()
    waiting = {"eta": eta, "request": {"id": "c-1", "name": "shop.remind", "args": [2]}}
    app = App(waiting, enough=2)
    with Producer(server) as producer:
        ids = [ours.schedule(producer, "shop.remind", [1], due)]
        assert ours.move(producer, app) == 1
        assert ours.move(producer, App()) == 0
        gone = ours.schedule(producer, "shop.remind", [3], due + timedelta(days=400))
        producer.cancel(gone)
        ours.schedule(producer, "shop.last", [], due + timedelta(milliseconds=200))
    assert app.revoked == ["c-1"]
    with (
        Consumer(server, group="celery", topic=ours.TOPIC) as consumer,
        pytest.raises(Enough),
    ):
        ours.release(consumer, app)
    assert sorted(args for _, args, _ in app.sent[:2]) == [[1], [2]]
    assert app.sent[2][0] == "shop.last"
    assert str(ids[0]) in {task_id for _, _, task_id in app.sent}
    async with AsyncAdmin(server) as admin:
        assert (await admin.describe(gone)).state is MessageState.CANCELLED


class Redis:
    """One sorted set."""

    def __init__(self, members: dict[bytes, float]) -> None:
        self._members = members

    def zrange(self, key: str, first: int, last: int, *, withscores: bool) -> list[Any]:
        assert withscores
        rows = sorted(self._members.items(), key=lambda row: (row[1], row[0]))
        return rows[first : last + 1]

    def zrem(self, key: str, *members: bytes) -> None:
        for member in members:
            del self._members[member]


async def test_sorted_set_is_moved_with_its_due_times(server: str) -> None:
    ours = program("From a sorted set")
    members = {f"{n}".encode(): LONG_AGO_S + n + 0.0005 for n in range(2 * ours.ROWS + 3)}
    redis = Redis({**members, b"later": 1_700_000_000.25})
    with Producer(server) as producer:
        assert ours.move(producer, redis, "delayed", "jobs") == len(members) + 1
    assert redis.zrange("delayed", 0, -1, withscores=True) == []
    found = {}
    with Consumer(server, group="workers", topic="jobs") as consumer:
        while len(found) < len(members) + 1:
            for message in consumer.receive():
                found[bytes(message.body)] = message.due_ms
                consumer.ack_soon(message)
    assert found[b"7"] == 1_000_000_007_001  # rounded up: never early
    assert found[b"later"] == 1_700_000_000_250


class Channel:
    """As much of pika's blocking channel as the program uses."""

    def __init__(self) -> None:
        self.is_confirming = False
        self.published: list[tuple[str, str, bytes]] = []

    def confirm_delivery(self) -> None:
        self.is_confirming = True

    def basic_publish(
        self, *, exchange: str, routing_key: str, body: bytes, mandatory: bool
    ) -> None:
        assert self.is_confirming
        assert mandatory
        self.published.append((exchange, routing_key, body))
        if body == b"last":
            raise Enough


async def test_rabbitmq_gets_what_is_due_and_what_it_did_not_confirm_comes_again(
    server: str,
) -> None:
    ours = program("From RabbitMQ")
    channel = Channel()
    with Producer(server) as producer:
        ours.publish(producer, "orders", "order.17", b"first", 1)
        ours.publish(producer, "orders", "order.18", b"last", 100)
    with Consumer(server, group="rabbit", topic="delayed") as consumer, pytest.raises(Enough):
        ours.release(consumer, channel)
    assert channel.published == [
        ("orders", "order.17", b"first"),
        ("orders", "order.18", b"last"),
    ]
    async with AsyncAdmin(server) as admin:
        (lag,) = (await admin.get_group("rabbit")).lags
    assert lag.unresolved_count == 1  # it was not acknowledged


@pytest.mark.parametrize(
    ("level", "delay_ms"), [(0, 0), (1, 1_000), (5, 60_000), (18, 7_200_000), (99, 7_200_000)]
)
def test_levels_of_rocketmq_mean_what_they_meant(level: int, delay_ms: int) -> None:
    ours = program("From RocketMQ")
    assert ours.delay_of_level(level) == delay_ms
    assert ours.delay_of_level(2, ["3d", "1s"]) == 1_000


async def test_rocketmq_producers_and_consumers_keep_their_words(server: str) -> None:
    ours = program("From RocketMQ")
    with Producer(server) as producer:
        for amount in ("50", "250"):
            ours.send(producer, "orders", b"x", level=0, tag="unpaid", key="17", amount=amount)
        waiting = ours.send(producer, "orders", b"x", level=18, tag="unpaid", key="17")
    with ours.consume(
        server, "managers", "orders", "amount >= 200 AND TAGS = 'unpaid'"
    ) as consumer:
        (message,) = consumer.receive()
        assert message.properties["amount"] == "250"
        assert message.attempt == 1
        consumer.ack(message)
    async with AsyncAdmin(server) as admin:
        assert (await admin.describe(waiting)).state is MessageState.PENDING


def test_each_program_of_the_page_is_tried() -> None:
    headings = re.findall(r"^## (From .*)$", tree.text(PAGE), re.MULTILINE)
    tried = re.findall(r'program\("(.+)"\)', tree.text("tests/clients/test_guides.py"))
    assert len(headings) == 4
    for heading in headings:
        assert any(heading.startswith(one) for one in tried), heading


# --- the other guides -----------------------------------------------------------------------------

GUIDES: Final = tuple(path for path in tree.files_named(".md") if path.startswith("docs/guides/"))


THREE_MACHINES: Final = "docs/guides/three-machines.md"
MONITORING: Final = "docs/guides/monitoring.md"


@pytest.mark.parametrize("text", [text for page in GUIDES for text in fenced(page, "toml")])
def test_configurations_in_guides_are_ones_that_are_taken(text: str, tmp_path: Path) -> None:
    """By a node, by the HTTP gateway, or by what pushes webhooks."""
    values = tomllib.loads(text)
    path = tmp_path / "hourwheel.toml"
    path.write_text(text)
    if "http" in values:
        assert read_settings(path).address
        return
    if "subscriptions" in values:
        assert read_push_settings(path).subscriptions
        return
    config = NodeConfig.of(values)
    if "node" in values:
        assert config.node.data_directory == Path("/var/lib/hourwheel")
    else:
        assert set(values) & {"access", "authentication", "tls"}


def test_certificates_of_the_guide_are_ones_that_nodes_take(tmp_path: Path) -> None:
    page = tree.text(THREE_MACHINES)
    (block,) = re.findall(r"\n\n((?: +openssl| +for node)(?:.*\n)+? +done\n)", page)
    if "openssl" in toolchains.packaging_missing():
        assert "openssl" not in toolchains.packaging_required()
        return
    script = textwrap.dedent(block)
    done = subprocess.run(
        ["sh", "-euc", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for node in ("a", "b", "c"):
        key, own = tmp_path / f"{node}.key", tmp_path / f"{node}.pem"
        assert with_certificates(own, key, tmp_path / "authority.pem").server_tls
        certificate = x509.load_pem_x509_certificate(own.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        assert set(names.value.get_values_for_type(x509.DNSName)) == {node, f"{node}.example"}


def test_files_of_the_guide_to_monitoring_are_ones_that_prometheus_takes(tmp_path: Path) -> None:
    prometheus, alertmanager = fenced(MONITORING, "yaml")
    rules = tree.ROOT / "helm" / "hourwheel" / "files" / "alerts.yaml"
    assert commands_of(MONITORING, "install")[0][2:] == [
        str(rules.relative_to(tree.ROOT)),
        yaml.safe_load(prometheus)["rule_files"][0],
    ]
    asked = " ".join(words[-1] for words in commands_of(MONITORING, "promtool"))
    named = set(re.findall(r"hourwheel_\w+", asked))
    assert named
    assert named <= set(re.findall(r"hourwheel_\w+", tree.text("docs/METRICS.md")))
    missing = toolchains.monitoring_missing()
    if missing:
        assert not set(missing) & set(toolchains.monitoring_required())
        return
    (tmp_path / "prometheus.yml").write_text(
        prometheus.replace("/etc/prometheus/hourwheel.yaml", str(rules))
    )
    (tmp_path / "alertmanager.yml").write_text(alertmanager)
    for check in (("promtool", "check", "config"), ("amtool", "check-config")):
        file = tmp_path / ("prometheus.yml" if check[0] == "promtool" else "alertmanager.yml")
        done = subprocess.run([*check, file], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
