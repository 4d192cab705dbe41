"""The table of metrics."""

import re
from pathlib import Path

from node.metrics import page, table

PAGE = Path(__file__).parents[4] / "docs" / "METRICS.md"


def test_metrics_page_is_up_to_date() -> None:
    command = "python -m node metrics --markdown > docs/METRICS.md"
    assert PAGE.read_text() == page.markdown(), command


ALL = [*table.FAMILIES, *(one for _, families in page.PROGRAMS for one in families)]


def test_names_are_unique_and_follow_the_rules() -> None:
    names = [family.name for family in ALL]
    assert len(names) == len(set(names))
    for family in ALL:
        assert re.fullmatch(r"hourwheel_[a-z0-9_]+", family.name)
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert not re.search(r"_(ms|millis|seconds_total|count|sum|bucket)$", family.name)
        assert family.text.endswith(".") or family.text.endswith(").")


def test_labels_are_bounded() -> None:
    allowed = {"shard", "group", "topic", "method", "code", "reason", "version", "python"}
    allowed |= {"within_seconds", "generation"}  # a few each
    allowed |= {"cause"}  # of a stall: names of work in the code
    allowed |= {"file"}  # kinds of those that logins rest on
    allowed |= {"quota"}  # limits of one
    allowed |= {"certificate"}  # a node's own, and its authority's
    allowed |= {"node", "role"}  # of a cluster, whose nodes are few
    allowed |= {"route", "status", "limit"}  # of the gateway's code
    allowed |= {"subscription", "handler", "result"}  # of a configuration, or a program
    assert {label for family in ALL for label in family.labels} <= allowed


def test_what_the_operating_team_needs_is_there() -> None:
    names = {family.name for family in table.FAMILIES}
    assert names >= {
        "hourwheel_delivery_lateness_seconds",
        "hourwheel_early_deliveries_total",
        "hourwheel_wheel_pending_messages",
        "hourwheel_wheel_overdue_messages",
        "hourwheel_log_append_duration_seconds",
        "hourwheel_log_fsync_duration_seconds",
        "hourwheel_log_group_commit_batches",
        "hourwheel_grpc_server_handled_total",
        "hourwheel_grpc_server_handling_seconds",
        "hourwheel_inflight_requests",
        "hourwheel_rejected_total",
        "hourwheel_disk_free_bytes",
        "hourwheel_read_only",
        "hourwheel_crc_errors_total",
        "hourwheel_redelivered_messages_total",
        "hourwheel_dead_lettered_messages_total",
        "hourwheel_cancelled_messages_total",
        "hourwheel_wheel_runs",
        "hourwheel_checkpoint_age_seconds",
        "hourwheel_checkpoint_duration_seconds",
        "hourwheel_consumer_lag_messages",
        "hourwheel_build_info",
    }
