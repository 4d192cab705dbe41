"""The follower's rules: whom to follow, what to take, what to grant."""

from typing import Any

import pytest

from hourwheel import errors
from hourwheel.errors import NotFollowed
from hourwheel.internal.v1.replication_pb2 import (
    BeginFrom,
    FollowerHello,
    LogPart,
    MasterHello,
    Refused,
    SyncBeat,
)
from replication.rules.follower import Follower, FollowerPhase, LogFacts
from replication.rules.master import PROTOCOL
from replication.rules.master_lease import LeaseGrant
from storage.files.file_header import Identity
from storage.log.epochs import EpochFile, EpochStore
from tests.sim.disk import SimulatedDisk

CLUSTER = bytes(range(16))
IDENTITY = Identity(CLUSTER, 0)
FACTS = LogFacts(0, 100, 70)


class World:
    """A follower 'b' and its files."""

    def __init__(self, *, grant_left_ms: float = 0.0, lease_ms_max: float = 600.0) -> None:
        disk = SimulatedDisk()
        self.seen = EpochStore.open(disk, "seen", IDENTITY)
        self.epochs = EpochFile.open(disk, "epochs", IDENTITY)
        self.epochs.append(1, 0)
        self.follower = Follower(
            me="b",
            boot_id="boot-b",
            cluster_id=CLUSTER,
            shard=0,
            seen=self.seen,
            grant=LeaseGrant(0.0, grant_left_ms, lease_ms_max=lease_ms_max),
        )

    def hear(
        self, epoch: int, master: str = "a", *, monotonic_ms: float = 0.0, **other: Any
    ) -> Any:
        fields = {
            "protocol": PROTOCOL,
            "cluster_id": CLUSTER,
            "shard": 0,
            "follower_id": "b",
            "boot_id": "boot",
            **other,
        }
        hello = MasterHello(epoch=epoch, node_id=master, **fields)
        return self.follower.on_hello(hello, FACTS, self.epochs, monotonic_ms)

    def follow(self, epoch: int, master: str = "a", *, monotonic_ms: float = 0.0) -> None:
        assert isinstance(self.hear(epoch, master, monotonic_ms=monotonic_ms), FollowerHello)
        self.follower.on_begin(BeginFrom(epoch=epoch, offset=100))

    def beat(self, epoch: int, monotonic_ms: float, **fields: Any) -> None:
        beat = SyncBeat(epoch=epoch, sent_us=7_000, lease_ms=600, **fields)
        self.follower.on_heartbeat(beat, monotonic_ms)

    def echo(self, monotonic_ms: float) -> tuple[int, int]:
        ack = self.follower.acknowledge(FACTS, (3, 4), monotonic_ms, 5_000.5)
        return ack.echo_us, ack.echo_age_us


def test_hello_is_answered_with_where_the_log_stands() -> None:
    world = World()
    answer = world.hear(3)
    assert isinstance(answer, FollowerHello)
    assert (answer.epoch, answer.boot_id) == (3, "boot-b")
    assert (answer.log_start_offset, answer.log_end_offset, answer.applied_offset) == (0, 100, 70)
    assert [(one.epoch, one.start_offset) for one in answer.epochs] == [(1, 0)]
    assert (world.seen.epoch, world.seen.master) == (3, "a")


@pytest.mark.parametrize(
    "other",
    [{"protocol": 2}, {"cluster_id": bytes(16)}, {"shard": 1}, {"follower_id": "c"}],
    ids=lambda other: next(iter(other)),
)
def test_hello_is_refused_when_it_is_meant_for_somebody_else(other: dict[str, Any]) -> None:
    world = World()
    assert isinstance(world.hear(3, **other), Refused)
    assert world.seen.epoch == 0
    assert world.follower.phase is FollowerPhase.NONE


def test_refusal_says_for_good_and_why_when_the_master_speaks_another_protocol() -> None:
    refused = World().hear(3, protocol=2)
    assert isinstance(refused, Refused)
    assert refused.reason == errors.IncompatibleFormat.reason
    assert "version 2" in refused.why
    passing = World().hear(3, follower_id="c")
    assert isinstance(passing, Refused)
    assert not passing.reason


@pytest.mark.parametrize(("epoch", "master"), [(2, "a"), (3, "c")])
def test_I4_hello_is_refused_when_its_epoch_is_over_or_of_another(  # noqa: N802
    epoch: int, master: str
) -> None:
    world = World()
    world.follow(3)
    refused = world.hear(epoch, master)
    assert isinstance(refused, Refused)
    assert (refused.epoch, refused.master, refused.wait_ms) == (3, "a", 0)
    assert world.follower.phase is FollowerPhase.FOLLOWING


def test_I4_hello_of_the_next_master_waits_when_a_grant_lasts() -> None:  # noqa: N802
    world = World()
    world.follow(3)
    world.beat(3, 1_000.0)
    refused = world.hear(4, "c", monotonic_ms=1_200.0)
    assert isinstance(refused, Refused)
    assert refused.wait_ms == 401
    assert world.seen.epoch == 3, "not to be noted: the former master may go on"
    assert isinstance(world.hear(4, "c", monotonic_ms=1_600.0), FollowerHello)


def test_I4_old_master_gets_no_grant_more_when_the_next_is_named() -> None:  # noqa: N802
    world = World()
    world.follow(3)
    assert world.follower.on_epoch(4, "c")
    assert world.follower.is_superseded
    with pytest.raises(NotFollowed):
        world.beat(3, 1_000.0)
    assert isinstance(world.hear(4, "c", monotonic_ms=1_000.0), FollowerHello)


def test_epoch_is_no_news_when_it_is_known_older_or_of_another() -> None:
    world = World()
    assert world.follower.on_epoch(3, "a")
    assert not world.follower.on_epoch(3, "a")
    assert not world.follower.on_epoch(3, "c")
    assert not world.follower.on_epoch(2, "c")


def test_nothing_is_taken_when_it_is_not_what_comes_next() -> None:
    world = World()
    with pytest.raises(NotFollowed):
        world.follower.on_begin(BeginFrom(epoch=3))
    world.hear(3)
    with pytest.raises(NotFollowed):
        world.follower.check_log(LogPart(epoch=3, offset=100), 100)
    with pytest.raises(NotFollowed):
        world.beat(3, 1.0)
    with pytest.raises(NotFollowed):
        world.follower.on_begin(BeginFrom(epoch=2))
    world.follower.on_begin(BeginFrom(epoch=3))
    world.follower.check_log(LogPart(epoch=3, offset=100), 100)
    for part in (LogPart(epoch=3, offset=99), LogPart(epoch=2, offset=100)):
        with pytest.raises(NotFollowed):
            world.follower.check_log(part, 100)
    world.follower.end()
    with pytest.raises(NotFollowed):
        world.follower.check_log(LogPart(epoch=3, offset=100), 100)


def test_high_watermark_never_falls() -> None:
    world = World()
    world.follow(3)
    world.follower.check_log(LogPart(epoch=3, offset=100, high_watermark=80), 100)
    world.beat(3, 1.0, high_watermark=60)
    assert world.follower.high_watermark == 80
    world.beat(3, 1.0, high_watermark=90)
    assert world.follower.high_watermark == 90


def test_acknowledgement_echoes_the_last_beat_and_how_old_it_is() -> None:
    world = World()
    world.follow(3)
    assert world.echo(5.0) == (0, 0)
    world.beat(3, 10.0)
    assert world.echo(12.5) == (7_000, 2_500)


def test_acknowledgement_tells_what_was_released() -> None:
    world = World()
    world.follow(3)
    ack = world.follower.acknowledge(FACTS, (3, 4), 1.0, 5_000.5)
    assert (ack.epoch, ack.flushed_end_offset, ack.applied_offset) == (3, 100, 70)
    assert (ack.released_count, ack.released_mix, ack.clock_ms) == (3, 4, 5_000.5)


def test_I4_lease_is_not_waited_for_when_the_process_that_has_it_has_ended() -> None:  # noqa: N802
    world = World()
    world.follow(3)
    world.beat(3, 100)
    refused = world.hear(4, "c", monotonic_ms=200, ended_boot_ids=["another"])
    assert isinstance(refused, Refused)
    assert refused.wait_ms == 501
    answer = world.hear(4, "c", monotonic_ms=200, ended_boot_ids=["another", "boot"])
    assert isinstance(answer, FollowerHello)
    assert world.follower.ended_boot_ids == {"another", "boot"}


def test_ends_of_processes_are_remembered_as_far_as_there_may_be_nodes() -> None:
    world = World()
    for number in range(1_000):
        world.follower.note_ended([f"boot-{number}"])
    assert len(world.follower.ended_boot_ids) == 64
    assert "boot-999" in world.follower.ended_boot_ids


@pytest.mark.parametrize(("lease_ms_max", "is_granted"), [(600.0, True), (599.0, False)])
def test_I4_no_lease_is_granted_that_a_start_would_forget(  # noqa: N802
    lease_ms_max: float, is_granted: bool
) -> None:
    """By its own configuration it would count a shorter one as granted, and follow another."""
    world = World(lease_ms_max=lease_ms_max)
    world.follow(1)
    world.beat(1, 50.0, high_watermark=90)
    assert world.echo(60.0) == ((7_000, 10_000) if is_granted else (0, 0))
    assert world.follower.high_watermark == 90, "it follows all the same"
    assert world.follower.grant_left_ms(2, "c", 50.0) == (600.0 if is_granted else 0.0)
