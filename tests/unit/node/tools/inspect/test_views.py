"""Owner, manifest, consume queues."""

from node.tools.inspect.report import Report
from node.tools.inspect.views import (
    queue_states,
    shards_of,
    show_chunk,
    show_manifest,
    show_node,
    show_queues,
)
from tests.support.inspected import (
    SHARD,
    disk_of,
    files_of,
    flipped,
    made_image,
    numbers,
    paths,
    rows,
)


def test_owner_is_shown() -> None:
    disk = disk_of(made_image())
    report = Report()
    show_node(disk, "node.meta", report)
    (owner,) = rows(report, "node")
    assert (owner["node_id"], owner["last_opened_by_process"]) == ("node-1", "4711")
    assert owner["shards"] == SHARD == ", ".join(shards_of(disk))


def test_folders_beside_a_shard_are_no_shards() -> None:
    disk = disk_of(made_image())
    for name in ("shard-1", "shard-0.incoming", "shard-0.damaged-1", "shard-", "shard-x", "7"):
        disk.make_dir(name)
    assert shards_of(disk) == [SHARD, "shard-1"]


def test_other_file_is_no_owner() -> None:
    report = Report()
    show_node(disk_of(made_image()), f"{SHARD}/epochs", report)
    assert "is a EPOCHS" in report.damage[0].why


def test_manifest_is_shown_field_by_field() -> None:
    files = files_of(made_image())
    report = Report()
    show_manifest(files, f"{SHARD}/checkpoint", report)
    told = {row["field"]: row["value"] for row in rows(report, "checkpoint")}
    assert (told["topics"], told["runs"], told["next_sequence"]) == (3, 8, 288)
    assert str(told["cursor_due_ms"]).endswith("Z)")
    assert rows(report, "checkpoint: groups")[0]["name"] == "workers"
    assert rows(report, "checkpoint: acks")[0]["floor_position"] == 32


def test_manifest_that_is_missing_is_remarked_and_a_bad_one_is_damage() -> None:
    image = made_image()
    path = f"{SHARD}/checkpoint"
    report = Report()
    show_manifest(files_of(flipped(image, path, 200)), path, report)
    assert [damage.file for damage in report.damage] == [path]
    del image[path]
    report = Report()
    show_manifest(files_of(image), path, report)
    assert (report.is_good, len(report.remarks)) == (True, 1)


def test_queues_are_shown_with_the_names_of_their_topics() -> None:
    files = files_of(made_image())
    report = Report()
    show_queues(files, files.manifest(), report)
    assert [(row["topic"], row["queue"]) for row in rows(report, "queues")] == [
        ("orders", 0),
        ("orders", 1),
    ]
    assert set(queue_states(files, None).values()) == {None}


def test_chunk_is_shown_with_its_seals_and_entries() -> None:
    image = made_image()
    files, path = files_of(image), paths(image, "queues/00000100", ".cq")[1]
    report = Report()
    show_chunk(files, path, report, position=None, limit=100)
    found = rows(report, "entries")
    assert numbers(found, "position") == list(range(32, 60))
    assert {row["sealed"] for row in found} == {"yes"}
    assert max(numbers(rows(report, "seals"), "entries")) == len(found)
    report = Report()
    show_chunk(files, path, report, position=50, limit=2)
    assert numbers(rows(report, "entries"), "position") == [50, 51]
    assert report.tables[-1].has_more


def test_entries_are_shown_unsealed_when_no_checkpoint_saw_them() -> None:
    image = made_image()
    path = paths(image, "queues/00000100", ".cq")[1]
    raw = image[path]
    image[path] = raw[:64] + bytes(128) + raw[192:]
    report = Report()
    show_chunk(files_of(image), path, report, position=None, limit=100)
    assert {row["sealed"] for row in rows(report, "entries")} == {"no"}
    assert "no seal" in report.remarks[0]
