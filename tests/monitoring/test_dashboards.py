"""Dashboards: the committed files are what the code makes, and Grafana can show them."""

import json
import re
from itertools import combinations, pairwise
from typing import Any

import pytest

from helm.monitoring.dashboards import DASHBOARDS
from helm.monitoring.panels import FOLDER, Dashboard, render
from node.metrics.page import PROGRAMS
from node.metrics.table import FAMILIES
from tests.monitoring.rules import alerts, metrics_of, recorded

UNITS = {
    *("s", "bytes", "Bps", "ops", "percentunit", "short", "none", "dateTimeFromNow"),
}
"""Grafana's names; any other one would be shown as text behind the number."""
DOCUMENTED = {family.name for family in FAMILIES}
DOCUMENTED |= {family.name for _, families in PROGRAMS for family in families}
OTHERS = re.compile(r"(process_(cpu_seconds_total|resident_memory_bytes|open_fds|max_fds)|up)$")
each = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.name)


def loaded(dashboard: Dashboard) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(render(dashboard))
    return found


def shown(dashboard: Dashboard) -> list[dict[str, Any]]:
    """Panels, without the rows' headings."""
    return [panel for panel in loaded(dashboard)["panels"] if panel["type"] != "row"]


def test_committed_files_are_what_the_code_makes() -> None:
    made = {f"{one.name}.json": render(one) for one in DASHBOARDS}
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == made, "make pages"


def test_names_are_unique() -> None:
    uids = [loaded(one)["uid"] for one in DASHBOARDS]
    assert len(set(uids)) == len(uids)
    assert all(re.fullmatch(r"[a-z-]{1,40}", uid) for uid in uids), "Grafana's bound"


@each
def test_panels_have_ids_places_units_and_texts(dashboard: Dashboard) -> None:
    panels = loaded(dashboard)["panels"]
    ids = [panel["id"] for panel in panels]
    assert sorted(set(ids)) == ids
    titles = [panel["title"] for panel in panels]
    assert len(set(titles)) == len(titles)
    for panel in shown(dashboard):
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["targets"], panel["title"]
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)
    for one, other in combinations(panels, 2):
        assert not overlap(one["gridPos"], other["gridPos"]), (one["title"], other["title"])
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    tops = [panel["gridPos"]["y"] for panel in panels]
    assert all(later >= earlier for earlier, later in pairwise(tops))


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return not (beside or above)


@each
def test_everything_is_asked_of_the_source_and_the_nodes_that_are_chosen(
    dashboard: Dashboard,
) -> None:
    page = loaded(dashboard)
    variables = [one["name"] for one in page["templating"]["list"]]
    assert variables == ["datasource", "namespace", "job", "instance"]
    for panel in shown(dashboard):
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert all(source["uid"] == "${datasource}" for source in sources)
        for target in panel["targets"]:
            if "hourwheel:" not in target["expr"]:
                asked = len(re.findall(r"\b(?:hourwheel|process|python)_\w+\{", target["expr"]))
                assert asked == target["expr"].count('instance=~"$instance"') > 0, target["expr"]
            if "rate(" in target["expr"] or "increase(" in target["expr"]:
                assert re.search(r"\[(\$__rate_interval|15m)\]", target["expr"]), target["expr"]


@each
def test_metrics_are_documented_ones(dashboard: Dashboard) -> None:
    for panel in shown(dashboard):
        for target in panel["targets"]:
            for name in metrics_of(target["expr"]):
                plain = re.sub(r"_(bucket|count|sum)$", "", name)
                is_known = {name, plain} & (DOCUMENTED | recorded())
                assert is_known or OTHERS.match(name) or name.startswith("python_gc_"), name


def test_each_metric_is_on_a_dashboard_or_in_an_alert() -> None:
    asked = {
        re.sub(r"_(bucket|count|sum)$", "", name)
        for dashboard in DASHBOARDS
        for panel in shown(dashboard)
        for target in panel["targets"]
        for name in metrics_of(target["expr"])
    }
    asked |= {name for alert in alerts() for name in metrics_of(alert["expr"])}
    unseen = {
        *("hourwheel_duplicate_messages_total", "hourwheel_groups_expired_total"),
        *("hourwheel_transactions_prepared_total", "hourwheel_transactions_committed_total"),
        *("hourwheel_transactions_rolled_back_total", "hourwheel_transactions_expired_total"),
        *("hourwheel_transaction_checks_total", "hourwheel_transactions_open"),
        "hourwheel_transaction_oldest_seconds",
        *("hourwheel_rescheduled_messages_total", "hourwheel_group_limited_polls_total"),
        *("hourwheel_occurrences_total", "hourwheel_occurrences_skipped_total"),
        "hourwheel_recurrences",
        "hourwheel_dedup_rejected_messages_total",
        "hourwheel_dedup_kept_messages_total",
        *("hourwheel_dedup_replaced_messages_total", "hourwheel_consumer_blocked_messages"),
        *("hourwheel_topics_expired_total", "hourwheel_subscriptions", "hourwheel_role"),
        *("hourwheel_checkpoints_total", "hourwheel_checkpoint_age_seconds"),
        *("hourwheel_damaged_messages_fetched_total", "hourwheel_scrub_passes_total"),
        *("hourwheel_catch_up_released_messages_total", "hourwheel_cluster_nodes"),
        *("hourwheel_heartbeats_sent_total", "hourwheel_heartbeats_received_total"),
        *("hourwheel_cluster_clock_offset_seconds", "hourwheel_control_last_exit_code"),
        *("hourwheel_control_stall_seconds_max", "hourwheel_loop_stall_seconds"),
        *("hourwheel_session_frames_total", "hourwheel_members_generation"),
        "hourwheel_log_retention_seconds",
        "hourwheel_broadcast_members_expired_total",
    }
    assert DOCUMENTED - asked == unseen
