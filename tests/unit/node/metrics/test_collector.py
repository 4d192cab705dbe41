"""From plain numbers to Prometheus' text and back."""

import platform
from collections.abc import Callable

import numpy as np
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

import hourwheel
from hourwheel.stalls import Stall
from hourwheel.v1.admin_pb2 import GetStatusResponse
from hourwheel.v1.status_pb2 import ControlStatus, FollowerStatus, ShardStatus
from node.broker.consumer_lag import LagReading, LagSeries
from node.broker.due_reading import DueWithin
from node.broker.slewed_clock import SlewedClock
from node.contracts.broker import ShardGauges
from node.metrics import collector
from node.metrics.family import CertificateEnds, ClusterFacts, ControlFacts, ProcessFacts
from node.metrics.table import FAMILIES
from node.telemetry.epoch_stats import EpochStats
from node.telemetry.histogram import DURATION_BOUNDS, Histogram
from node.telemetry.process_watch import ProcessStats
from node.telemetry.stats import ApiStats
from tests.support.fake_clock import FakeClock
from tests.support.fake_engine import NOW_MS, FakeEngine

STARTED_MS = NOW_MS - 5_000


class World:
    """A node to be scraped."""

    def __init__(self) -> None:
        self.engine, self.api, self.machine = FakeEngine(), ApiStats(), FakeClock()
        self.clock = SlewedClock(self.machine)
        self.cluster: Callable[[], ClusterFacts] | None = None
        self.lag = LagReading()
        self.due: tuple[DueWithin, ...] = ()
        self.process = ProcessFacts(ProcessStats(), "KILLED")

    def scrape(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Samples by name, then by the values of their labels in the order of their names."""

        def read() -> collector.Taken:
            return collector.take(
                collector.read_node(
                    *(self.engine, self.api, self.clock, STARTED_MS, self.lag, self.cluster),
                    due=self.due,
                    process=self.process,
                )
            )

        text = generate_latest(collector.registry(read)).decode()
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                values = tuple(value for _, value in sorted(sample.labels.items()))
                found.setdefault(sample.name, {})[values] = sample.value
        return found


def some_facts() -> ClusterFacts:
    follower = FollowerStatus(node_id="n2", heard_ms_ago=1, clock_offset_ms=1.0)
    status = GetStatusResponse(shards=[ShardStatus(followers=[follower])], control=ControlStatus())
    return ClusterFacts(
        status,
        EpochStats(),
        is_clock_unsure=False,
        heartbeat_age_ms=0.0,
        control=ControlFacts(commands=Histogram(DURATION_BOUNDS)),
        certificate_ends=CertificateEnds(70.0, 90.0),
    )


def test_every_metric_of_the_table_is_served() -> None:
    world = World()
    world.api.method("Publish").count("OK", 0.001)
    world.api.reject("OVERLOADED")
    world.api.reject_by_quota("topics")
    world.api.login_file("users")(True)
    world.lag = LagReading((LagSeries("g", "orders", 7, 2),))
    world.cluster = some_facts
    world.due = (DueWithin("60", 7), DueWithin("+Inf", 9))
    samples = world.scrape()
    for family in FAMILIES:
        name = f"{family.name}_count" if family.kind == "histogram" else family.name
        assert name in samples, name
        assert all(len(labels) == len(family.labels) for labels in samples[name])


def test_values_are_those_of_the_node() -> None:
    world = World()
    world.engine.shard_status = ShardStatus(pending_count=70)
    world.engine.shard_gauges = ShardGauges(
        overdue_count=7, cursor_lag_ms=1_500, disk_free_bytes=1 << 30
    )
    world.engine.stats.early_deliveries = 3
    world.engine.stats.checkpoint_ms = NOW_MS - 2_500
    world.api.method("Publish").count("OK", 0.5)
    world.api.method("Publish").count("UNAVAILABLE", 0.5)
    world.api.requests_in_flight = 4
    samples = world.scrape()
    shard = ("0",)
    assert samples["hourwheel_wheel_pending_messages"][shard] == 70
    assert samples["hourwheel_wheel_overdue_messages"][shard] == 7
    assert samples["hourwheel_wheel_dequeue_lag_seconds"][shard] == 1.5
    assert samples["hourwheel_disk_free_bytes"][shard] == 1 << 30
    assert samples["hourwheel_early_deliveries_total"][shard] == 3
    assert samples["hourwheel_checkpoint_age_seconds"][shard] == 2.5
    assert samples["hourwheel_grpc_server_handled_total"][("UNAVAILABLE", "Publish")] == 1
    assert samples["hourwheel_grpc_server_handling_seconds_sum"][("Publish",)] == 1.0
    assert samples["hourwheel_inflight_requests"][()] == 4
    assert samples["hourwheel_start_timestamp_seconds"][()] == STARTED_MS / 1_000
    versions = (platform.python_version(), hourwheel.__version__)
    assert samples["hourwheel_build_info"][versions] == 1


def test_histogram_is_cumulative_and_ends_with_infinity() -> None:
    world = World()
    world.engine.stats.lateness.observe_many(np.array([0, 1, 4, 4_000_000]), 0.001)
    samples = world.scrape()
    buckets = {
        labels[0]: value
        for labels, value in samples["hourwheel_delivery_lateness_seconds_bucket"].items()
    }
    assert (buckets["0.0"], buckets["0.001"], buckets["0.005"]) == (1, 2, 3)
    assert (buckets["3600.0"], buckets["+Inf"]) == (3, 4)
    assert samples["hourwheel_delivery_lateness_seconds_count"][("0",)] == 4


def test_read_only_is_a_flag_whatever_the_reason_says() -> None:
    world = World()
    assert world.scrape()["hourwheel_read_only"][("0",)] == 0
    world.engine.shard_gauges = ShardGauges(read_only_reason="512 bytes are free")
    assert world.scrape()["hourwheel_read_only"][("0",)] == 1


def test_a_step_of_the_wall_clock_shows() -> None:
    world = World()
    world.machine.wall += 600_000
    world.machine.pass_ms(20)
    world.clock.now_ms()
    samples = world.scrape()
    assert samples["hourwheel_clock_offset_seconds"][()] == 600
    assert samples["hourwheel_clock_step_pending"][()] == 1


def test_lag_is_told_of_those_that_were_chosen_and_of_all_together() -> None:
    world = World()
    world.lag = LagReading((LagSeries("a", "x", 7, 2), LagSeries("b", "x", 5, 0)), 40, 90, 20)
    samples = world.scrape()
    assert samples["hourwheel_consumer_lag_messages"] == {("a", "x"): 7, ("b", "x"): 5}
    assert samples["hourwheel_consumer_leased_messages"] == {("a", "x"): 2, ("b", "x"): 0}
    assert samples["hourwheel_consumer_lag_omitted_series"][()] == 40
    assert samples["hourwheel_consumer_lag_all_messages"][()] == 90
    assert samples["hourwheel_consumer_leased_all_messages"][()] == 20


def test_what_is_due_is_told_by_its_distance() -> None:
    world = World()
    world.due = (DueWithin("60", 7), DueWithin("+Inf", 9))
    found = world.scrape()["hourwheel_wheel_due_messages"]
    assert found == {("0", "60"): 7, ("0", "+Inf"): 9}


def test_how_the_process_does_is_told() -> None:
    world = World()
    for at_ms in range(3):
        world.process.stats.stalls.add(Stall(at_ms, 20.0, 20.0, 0.0, 0.0, {"apply": 20.0}))
    world.process.stats.loop_delay.observe(0.02)
    world.process.stats.gc_pauses[2].observe(0.5)
    samples = world.scrape()
    stalls = samples["hourwheel_loop_stalls_total"]
    assert stalls.pop(("apply",)) == 3
    assert set(stalls.values()) == {0}, "what there was none of yet is 0"
    assert samples["hourwheel_loop_stall_seconds_sum"][()] == pytest.approx(0.06)
    assert samples["hourwheel_loop_delay_seconds_sum"][()] == 0.02
    assert samples["hourwheel_gc_pause_seconds_sum"] == {("0",): 0, ("1",): 0, ("2",): 0.5}
    assert samples["hourwheel_last_exit"] == {("KILLED",): 1}


def test_process_and_garbage_collector_are_told_too() -> None:
    samples = World().scrape()
    assert samples["process_resident_memory_bytes"][()] > 0
    assert "python_gc_collections_total" in samples
