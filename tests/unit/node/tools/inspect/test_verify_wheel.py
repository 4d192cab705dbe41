"""Verifying the wheel: runs, directories, chains, bodies, and that nothing is missing."""

from collections.abc import Callable

import numpy as np
import pytest

from hourwheel.crc32c import crc32c
from hourwheel.internal.v1.state_pb2 import Checkpoint, RunState
from node.shard.checkpoint import run_state
from node.tools.inspect.report import Report
from node.tools.inspect.verify_wheel import Blobs, Chain, _pieces, verify_run, verify_wheel
from storage.views.unit import UNIT
from tests.sim.disk import SimulatedDisk
from tests.support.inspected import Image, files_of, flipped, made_image, paths
from tests.support.runs import DIRECTORY, IDENTITY, keyed, run_bytes, write_run
from timewheel.levels import DAY_MS, HOUR_MS
from timewheel.run import Run, open_run
from timewheel.run_format import FOOTER, SECTION, SLOT, Footer, pack_footer, run_path, unpack_footer

KEYS = [(HOUR_MS + 1_000 * number, number) for number in range(600)]


def verify(image: Image, change: Callable[[Checkpoint], object] = lambda _: None) -> Report:
    files, report = files_of(image), Report()
    manifest = files.manifest()
    assert manifest is not None
    change(manifest)
    verify_wheel(files, manifest, report, log_start=0)
    return report


def test_wheel_is_good_when_nothing_is_damaged() -> None:
    assert verify(made_image()).is_good


def test_pending_messages_are_counted() -> None:
    def more(manifest: Checkpoint) -> None:
        manifest.pending_count += 1

    (damage,) = verify(made_image(), more).damage
    assert "pending" in damage.why


@pytest.mark.parametrize("field", ["level", "unit_count", "due_ms_min", "due_ms_max"])
def test_run_is_damage_when_the_manifest_means_another_one(field: str) -> None:
    def change(manifest: Checkpoint) -> None:
        setattr(manifest.runs[0], field, getattr(manifest.runs[0], field) ^ 1)

    assert verify(made_image(), change).damage[0].why.startswith("level, units")


def test_delay_log_is_damage_when_it_has_another_length() -> None:
    image = made_image()
    path = paths(image, "wheel/", ".dlog")[0]
    for content in (image[path] + b"x", image[path][:-1]):
        assert verify({**image, path: content}).damage[0].file == path


def test_bodies_are_named_when_they_are_damaged() -> None:
    image = made_image()
    path = paths(image, "wheel/", ".dlog")[2]
    (damage,) = verify(flipped(image, path, 64)).damage
    assert (damage.file, damage.offset) == (path, 64)
    assert "message" in damage.why


def test_units_that_need_a_log_that_is_gone_are_damage() -> None:
    units = keyed([(1, 1), (2, 2)], dlog_id=0)
    units["position"] = [100, 200]
    report = Report()
    blobs = Blobs(files_of(made_image()), log_start=150)
    blobs.verify(units, "of", report)
    blobs.close()
    assert [(damage.file, "offset 100" in damage.why) for damage in report.damage] == [("of", True)]


def test_near_bodies_are_read_together_and_far_ones_apart() -> None:
    def cut(starts: list[int], size: int) -> list[tuple[int, int]]:
        begins = np.array(starts, np.int64)
        return list(_pieces(begins, begins + size))

    assert cut([], 1) == []
    assert cut([0, 10, 20], 10) == [(0, 3)]
    assert cut([0, 10, 100_000], 10) == [(0, 2), (2, 3)]
    assert cut([0, 3 << 20, 6 << 20], 3 << 20) == [(0, 1), (1, 2), (2, 3)]


# --- a run with right checksums and wrong contents ------------------------------------------------


def forged(change: Callable[[dict[str, bytearray]], object]) -> Run:
    """A run whose parts were changed before all its checksums were made."""
    disk = SimulatedDisk()
    write_run(disk, keyed(KEYS)).close()
    raw = run_bytes(disk)
    footer = unpack_footer(raw[-FOOTER.size :])
    assert footer is not None
    cuts = [0, 64, 64 + 64 * len(KEYS)]
    cuts += [cuts[-1] + 3_600 * SLOT.itemsize, cuts[-1] + 3_600 * SLOT.itemsize + SECTION.itemsize]
    names = ("header", "units", "directory", "sections")
    parts = {
        name: bytearray(raw[low:high])
        for name, low, high in zip(names, cuts, cuts[1:], strict=False)
    }
    change(parts)
    section = np.frombuffer(parts["sections"], SECTION).copy()
    section["crc"] = crc32c(parts["directory"])
    blocks = range(0, len(parts["units"]), 256 * 64)
    crcs = np.array([crc32c(parts["units"][at : at + 256 * 64]) for at in blocks], "<u4")
    tables = section.tobytes() + crcs.tobytes()
    sealed = pack_footer(Footer(**{**footer._asdict(), "tables_crc": crc32c(tables)}))
    whole = b"".join((parts["header"], parts["units"], parts["directory"], tables, sealed))
    disk.remove(run_path(DIRECTORY, 1, 1))
    disk.open(run_path(DIRECTORY, 1, 1), create=True).pwrite([whole], 0)
    return open_run(disk, DIRECTORY, IDENTITY, 1, 1)


def swap(parts: dict[str, bytearray]) -> None:
    units = parts["units"]
    units[:64], units[64:128] = units[64:128], units[:64]


def leave_the_bucket(parts: dict[str, bytearray]) -> None:
    np.frombuffer(parts["units"], UNIT)["due_ms"][-1] += HOUR_MS


def count_wrong(parts: dict[str, bytearray]) -> None:
    np.frombuffer(parts["directory"], SLOT)["count"][7] += 1


def begin_elsewhere(parts: dict[str, bytearray]) -> None:
    np.frombuffer(parts["directory"], SLOT)["first"][7] += 1


def link_forward(parts: dict[str, bytearray]) -> None:
    np.frombuffer(parts["directory"], SLOT)["previous_run"][7] = 1


def shift_section(parts: dict[str, bytearray]) -> None:
    np.frombuffer(parts["sections"], SECTION)["first"] += 1


def shorten_section(parts: dict[str, bytearray]) -> None:
    np.frombuffer(parts["sections"], SECTION)["count"] -= 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda _: None, ""),
        (swap, "not in key order"),
        (leave_the_bucket, "units of another one"),
        (count_wrong, "counts other units"),
        (begin_elsewhere, "counts other units"),
        (link_forward, "does not lead to an older run"),
        (shift_section, "begins at unit 1, not 0"),
        (shorten_section, "buckets of 599"),
    ],
)
def test_run_is_damage_when_its_parts_contradict_each_other(
    change: Callable[[dict[str, bytearray]], object], why: str
) -> None:
    run, report = forged(change), Report()
    units = list(verify_run(run, run_state(run), report))
    assert report.is_good == (why == "")
    assert why in " ".join(damage.why for damage in report.damage)
    assert sum(map(len, units)) >= len(KEYS) - 1


def test_units_of_cascaded_days_are_not_its_own() -> None:
    disk = SimulatedDisk()
    run = write_run(disk, keyed([(0, 0), (DAY_MS, 1), (DAY_MS, 2)]), level=1)
    run.cascaded_days.add(1)
    report = Report()
    assert sum(map(len, verify_run(run, run_state(run), report))) == 1
    assert report.is_good


# --- chains -------------------------------------------------------------------------------------


def test_links_lead_to_runs_that_stand_for_their_number() -> None:
    manifest = Checkpoint(
        runs=[
            RunState(covers_first=1, run_id=5, level=0),
            RunState(covers_first=6, run_id=7, level=1),
        ]
    )
    chain = Chain(manifest, 0)
    assert [chain.stands(number) for number in (0, 1, 5, 6, 8)] == [True, True, True, False, False]
    assert Chain(manifest, 1).stands(6)


def test_links_of_buckets_that_are_past_may_lead_nowhere() -> None:
    manifest = Checkpoint()
    manifest.cursor.due_ms = 2 * HOUR_MS
    chain = Chain(manifest, 0)
    assert [chain.is_past(hour) for hour in (1, 2, 3)] == [True, True, False]


def test_chain_is_damage_when_it_breaks_in_an_hour_to_come() -> None:
    def forget(manifest: Checkpoint) -> None:
        gone = manifest.runs[0]
        assert gone.level == 0
        manifest.pending_count -= gone.unit_count - 9
        del manifest.runs[0]

    report = verify(made_image(), forget)
    assert {damage.why.split(" of bucket")[0] for damage in report.damage} == {"the chain"}
