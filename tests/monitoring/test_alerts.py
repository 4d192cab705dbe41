"""Alerts: each fires when it should, and only then; by promtool, which Prometheus comes with."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from node.metrics.page import PROGRAMS
from node.metrics.table import FAMILIES
from tests.monitoring.alert_cases import CASES, Series
from tests.monitoring.rules import ALERTS_FILE, alerts, metrics_of
from tests.support.reaper import say
from tests.support.toolchains import monitoring_missing, monitoring_required
from tests.tidy.tree import ROOT

_WHERE = 'namespace="prod",job="hourwheel",instance="n1"'


def is_left_out(tool: str) -> bool:
    """Whether this machine lacks a program that nobody demands; says so, loudly."""
    why = monitoring_missing().get(tool)
    if why and tool not in monitoring_required():
        say(f"alerts are not tried with {tool}: {why}")
        return True
    assert not why, why
    return False


def placed(series: Series) -> list[dict[str, str]]:
    """With the labels that Prometheus adds."""
    return [
        {"series": name.replace("{", "{" + _WHERE + ",", 1).replace(",}", "}"), "values": values}
        for name, values in series.items()
    ]


def group(alert: str, series: Series, minutes: int, *, is_firing: bool) -> dict[str, Any]:
    """One of promtool's tests."""
    expr = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
    sample = {"labels": "{}", "value": int(is_firing)}
    return {
        "name": f"{alert} {'fires' if is_firing else 'is quiet'}",
        "interval": "1m",
        "input_series": placed(series),
        "promql_expr_test": [
            {"expr": expr, "eval_time": f"{minutes}m", "exp_samples": [sample]},
        ],
    }


def promtool(*arguments: str) -> str:
    done = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rules_are_sound() -> None:
    if is_left_out("promtool"):
        return
    promtool("check", "rules", str(ALERTS_FILE))


def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    if is_left_out("promtool"):
        return
    groups = []
    for alert, case in CASES.items():
        groups.append(group(alert, case.fires, case.minutes, is_firing=True))
        groups.append(group(alert, case.quiet, case.minutes, is_firing=False))
        if case.resolved:
            groups.append(group(alert, case.resolved, case.minutes, is_firing=False))
    tests = {
        "rule_files": [str(ALERTS_FILE)],
        "evaluation_interval": "1m",
        "tests": groups,
    }
    (tmp_path / "alerts.test.yaml").write_text(json.dumps(tests))
    promtool("test", "rules", str(tmp_path / "alerts.test.yaml"))


def test_each_alert_has_cases_and_a_page() -> None:
    names = [alert["alert"] for alert in alerts()]
    assert len(names) == len(set(names))
    assert sorted(CASES) == sorted(names)
    pages = {path.stem for path in (ROOT / "docs/runbooks").glob("*.md")} - {"README"}
    assert pages == set(names)


@pytest.mark.parametrize("alert", alerts(), ids=lambda one: one["alert"])
def test_alert_says_how_bad_it_is_and_what_to_do(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in {"critical", "warning"}
    notes = alert["annotations"]
    assert notes["summary"].endswith(".")
    assert notes["description"].endswith(".")
    assert notes["runbook"] == f"docs/runbooks/{alert['alert']}.md"
    page = (ROOT / "docs/runbooks" / f"{alert['alert']}.md").read_text()
    assert page.startswith(f"# {alert['alert']}\n")
    for part in ("What it means", "What to look at", "What to do"):
        assert f"\n## {part}\n" in page, part
    assert alert["labels"]["severity"] in page


def test_rules_ask_for_metrics_that_there_are() -> None:
    known = {family.name for family in FAMILIES} | {"up"}
    known |= {family.name for _, families in PROGRAMS for family in families}
    recorded = set()
    for rules in yaml.safe_load(ALERTS_FILE.read_text())["groups"]:
        for rule in rules["rules"]:
            asked = metrics_of(rule["expr"])
            assert asked, rule
            unknown = {
                name
                for name in asked - known - recorded
                if re.sub(r"_(bucket|count|sum)$", "", name) not in known
            }
            assert unknown == set(), rule
            recorded |= {rule["record"]} if "record" in rule else set()
