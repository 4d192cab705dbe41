"""Three nodes under load beside a real Prometheus and Alertmanager: queries, alerts, bad scrapers.

One cluster for all, since starting it is what takes time: first every query is asked, then one
thing after another goes wrong and is put right, and all the while somebody scrapes without mercy.
"""

import asyncio
import http.client
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from chaos.faults import fill_disk
from chaos.machine import can_mount, tmpfs
from helm.monitoring.dashboards import DASHBOARDS
from hourwheel import AsyncAdmin, errors
from node.tools.local_cluster.nodes import LocalCluster, LocalNode
from tests.monitoring.rules import alerts, metrics_of, queries_of
from tests.support.cluster_load import ClusterLoad
from tests.support.real_prometheus import RealPrometheus, made_quick
from tests.support.reaper import say
from tests.support.toolchains import monitoring_missing, monitoring_required

MIB: Final = 1 << 20
DISK: Final = {"free_bytes_min": 8 * MIB, "reserve_bytes": MIB}
ROOM_MIB: Final = 512
SCRAPE_S: Final = 0.1
ELSEWHERE: Final = {
    "hourwheel_tls_certificate_not_after_timestamp_seconds",
    "hourwheel_login_files_refused",
    *("hourwheel_push_posts_total", "hourwheel_push_files_refused", "hourwheel_http_files_refused"),
}
"""What nodes that share a secret and have no file of logins, as here, do not serve."""


class BadScrapers:
    """Scrapes each node every 100 ms, and has some connections that ask and never read."""

    def __init__(self, nodes: tuple[LocalNode, ...]) -> None:
        self._nodes = nodes
        self.answered = 0
        self.wrong: list[str] = []
        self._lazy: list[socket.socket] = []
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        for node in self._nodes:
            host, port = node.metrics_address.split(":")
            for _ in range(20):
                lazy = socket.create_connection((host, int(port)), timeout=30)
                lazy.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                self._lazy.append(lazy)
        while True:
            await asyncio.gather(*(self._scrape(node) for node in self._nodes))
            with suppress(TimeoutError):
                async with asyncio.timeout(SCRAPE_S):
                    await self._over.wait()

    async def _scrape(self, node: LocalNode) -> None:
        with suppress(OSError, http.client.HTTPException, TimeoutError):  # killed, or it stands
            status, text = await asyncio.to_thread(get_metrics, node.metrics_address)
            if status == 200 and "hourwheel_build_info{" in text:
                self.answered += 1
            elif status != 503:  # while it starts
                self.wrong.append(f"{node.node_id}: {status} {text[:200]}")

    def close(self) -> None:
        self._over.set()
        for lazy in self._lazy:
            lazy.close()


def get_metrics(address: str) -> tuple[int, str]:
    """Status and text of one scrape."""
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@asynccontextmanager
async def bad_scrapers(nodes: tuple[LocalNode, ...]) -> AsyncIterator[BadScrapers]:
    scrapers = BadScrapers(nodes)
    task = asyncio.create_task(scrapers.run())
    try:
        yield scrapers
    finally:
        task.cancel()
        await asyncio.wait([task])
        scrapers.close()


async def test_operations_when_all_is_watched_by_a_real_prometheus(tmp_path: Path) -> None:
    why = monitoring_missing().get("prometheus")
    if why and "prometheus" not in monitoring_required():
        say(f"not beside a real Prometheus: {why}")
        return
    assert not why, why
    folder = tmp_path / "cluster"
    with ExitStack() as stack:
        cluster = LocalCluster(folder, values={"disk": DISK})
        has_small_disks = can_mount()
        if has_small_disks:
            for node in cluster.nodes:
                stack.enter_context(tmpfs(folder / node.node_id, ROOM_MIB))
        else:
            say("no disk is filled: this machine cannot mount one")
        async with cluster:
            await cluster.wait_for_master(in_sync=3)
            targets = [node.metrics_address for node in cluster.nodes]
            async with (
                RealPrometheus(tmp_path / "prometheus", targets) as prometheus,
                ClusterLoad(cluster.servers) as load,
                bad_scrapers(cluster.nodes) as scrapers,
            ):
                await load.some(200)
                await be_refused(cluster)
                await check_names(cluster)
                await ask_everything(prometheus)
                await kill_the_master(cluster, prometheus)
                await stop_a_follower(cluster, prometheus)
                if has_small_disks:
                    await fill_a_disk(cluster, prometheus)
                await take_the_majority(cluster, prometheus)
                assert prometheus.process is not None
                prometheus.process.send_signal(signal.SIGSTOP)  # it asks, and reads no answer
                await load.some(200)
                prometheus.process.send_signal(signal.SIGKILL)
                await load.some(200)
                await load.finish()
                assert load.early() == []
                assert scrapers.wrong == []
                assert scrapers.answered > 0
                say(f"{scrapers.answered} scrapes beside Prometheus' own")


async def check_names(cluster: LocalCluster) -> None:
    """Prometheus' own rules for names, units and help texts."""
    _, text = await asyncio.to_thread(get_metrics, cluster.nodes[0].metrics_address)
    process = await asyncio.create_subprocess_exec(
        *("promtool", "check", "metrics"), stdin=-1, stdout=-1, stderr=-1
    )
    out, problems = await process.communicate(text.encode())
    assert process.returncode == 0, (out + problems).decode()


async def be_refused(cluster: LocalCluster) -> None:
    """So that something was refused, which panels show by reason."""
    async with AsyncAdmin(cluster.servers) as admin:
        with suppress(errors.UnknownTopic):
            await admin.get_topic("no-such-topic")


async def ask_everything(prometheus: RealPrometheus) -> None:
    """Each query of each panel and alert is answered, and has data."""
    boards = [one for one in DASHBOARDS if not one.is_of_programs]  # nodes are all that run here
    queries = [expr for dashboard in boards for expr in queries_of(dashboard)]
    assert len(queries) > 100
    for expr in queries:
        await prometheus.sees(made_quick(expr))
    for alert in alerts():
        await prometheus.ask(made_quick(alert["expr"]))
        for name in metrics_of(alert["expr"]) - ELSEWHERE:
            await prometheus.sees(name)
    say(f"{len(queries)} queries of dashboards and {len(alerts())} of alerts have data")


async def kill_the_master(cluster: LocalCluster, prometheus: RealPrometheus) -> None:
    index, status = await cluster.find_master()
    address = cluster.nodes[index].metrics_address
    await cluster.kill_node(index)
    await prometheus.fires("HourwheelTargetDown", instance=address)
    await prometheus.fires("HourwheelUnderReplicated")
    await cluster.start_node(index)
    await cluster.wait_for_master(epoch_above=status.epoch, in_sync=3)
    await prometheus.is_over("HourwheelTargetDown")
    await prometheus.is_over("HourwheelUnderReplicated")
    killed = f'hourwheel_last_exit{{instance="{address}",reason="KILLED"}}'
    await prometheus.sees(killed)


async def stop_a_follower(cluster: LocalCluster, prometheus: RealPrometheus) -> None:
    """Cut off: it answers nobody any more, and is there again later."""
    master, _ = await cluster.find_master()
    follower = cluster.nodes[(master + 1) % 3]
    os.kill(follower.pid, signal.SIGSTOP)
    try:
        await prometheus.fires("HourwheelUnderReplicated")
    finally:
        os.kill(follower.pid, signal.SIGCONT)
    await cluster.wait_for_master(in_sync=3)
    await prometheus.is_over("HourwheelUnderReplicated")


async def fill_a_disk(cluster: LocalCluster, prometheus: RealPrometheus) -> None:
    """All but a little: messages are refused by that node, and by the master for its sake."""
    index, _ = await cluster.find_master()
    node = cluster.nodes[(index + 1) % 3]
    ballast = fill_disk(node.config.node.data_directory)
    os.truncate(ballast, ballast.stat().st_size - 4 * MIB)
    try:
        await prometheus.fires("HourwheelReadOnly", instance=node.metrics_address)
        await prometheus.fires("HourwheelDiskLow", instance=node.metrics_address)
    finally:
        ballast.unlink()
    await prometheus.is_over("HourwheelReadOnly")
    await prometheus.is_over("HourwheelDiskLow")


async def take_the_majority(cluster: LocalCluster, prometheus: RealPrometheus) -> None:
    index, _ = await cluster.find_master()
    others = [(index + 1) % 3, (index + 2) % 3]
    for other in others:
        await cluster.kill_node(other)
    await prometheus.fires("HourwheelNoMaster")
    await prometheus.fires("HourwheelNoRaftLeader")
    await prometheus.fires("HourwheelNodeWithoutMajority")
    await prometheus.fires("HourwheelOverdueBacklog")
    await asyncio.gather(*map(cluster.start_node, others))
    await cluster.wait_for_master(in_sync=3)
    for alert in ("NoMaster", "NoRaftLeader", "NodeWithoutMajority", "OverdueBacklog"):
        await prometheus.is_over(f"Hourwheel{alert}")
