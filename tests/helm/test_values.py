"""Values: each one is described and has a schema; what is wrong is refused, and says why."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml

from node.config.model import NodeConfig
from tests.support.helm_chart import APIS, CASES, CHART, Refused, render
from tests.tidy import chart_pages

TLS: Final = "clientTls.enabled=true,clientTls.existingSecret=mine"
ISSUER: Final = "clientTls.enabled=true,clientTls.certManager.issuerRef.name"
ACCESS: Final = f"{TLS},access.enabled=true,access.existingSecret=users"
SCHEMA: Any = json.loads((CHART / "values.schema.json").read_text())


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """Paths of all values, down to what is no mapping of known keys."""
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from leaves(one, f"{path}.{key}" if path else key)
    else:
        yield path


def schemas(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All schemas in a schema."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key, one in schema.get("properties", {}).items():
        yield from schemas(one, f"{path}.{key}" if path else key)
    if "items" in schema:
        yield from schemas(schema["items"], f"{path}[]")


def test_each_value_is_described_and_has_a_schema() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    known = dict(schemas(SCHEMA))
    described = {one.path: one.text for one in chart_pages.values()}
    for path in leaves(defaults):
        above = [path.rsplit(".", count)[0] for count in range(path.count(".") + 1)]
        assert any(one in described for one in above), f"{path} has no description"
        assert any(one in known for one in above), path
    assert all(text.endswith((".", "?")) for text in described.values()), described
    assert set(described) <= set(known)


def test_each_key_of_the_schema_is_a_value() -> None:
    defaults = set(leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
    whole = {one.path for one in chart_pages.values()}
    for path, schema in schemas(SCHEMA):
        if "properties" in schema or not path or path == "global":
            continue
        inside = path.split("[]")[0]
        above = {inside.rsplit(".", count)[0] for count in range(inside.count(".") + 1)}
        assert inside in defaults or above & whole, f"{path} is not in values.yaml"


def test_no_key_is_free() -> None:
    free = {
        path
        for path, schema in schemas(SCHEMA)
        if schema.get("type") == "object" and schema.get("additionalProperties", True) is True
    }
    # Helm's own, and what Kubernetes itself has a schema of.
    kinds = {"nodeAffinity", "podAffinity", "podAntiAffinity"}
    assert free == {"global", *(f"affinity.{kind}" for kind in kinds)}


def test_config_has_each_key_of_a_node_but_those_that_the_chart_sets() -> None:
    sections = NodeConfig.model_json_schema()["properties"]
    assert set(SCHEMA["properties"]["config"]["properties"]) == set(sections)
    for section, keys in chart_pages.SET_BY_THE_CHART.items():
        known = SCHEMA["properties"]["config"]["properties"][section]["properties"]
        assert not keys & set(known)
        assert known
        with pytest.raises(Refused) as caught:
            render(*(f"--set-string=config.{section}.{key}=x" for key in keys))
        assert all(f"{key} is not allowed" in str(caught.value) for key in keys)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("replicas=2", "replicas must be one of the following: 1, 3, 5"),
        ("replicas=zero", "replicas must be one of the following"),
        ("replicaCount=3", "replicaCount is not allowed"),
        ("persistence.enabled=false", "enabled is not allowed"),
        ("persistence.size=lots", "Does not match pattern"),
        ("config.log.retention=1", "retention is not allowed"),
        ("config.logs.retention_ms=1", "logs is not allowed"),
        ("config.log.retention_ms=1", "greater than or equal to 60000"),
        ("config.log.durability=maybe", "must be one of the following"),
        ("config.topics.auto_create=7", "Invalid type. Expected: boolean"),
        ("config.cluster.min_in_sync=4", "min_in_sync is 4, and there are 3 nodes"),
        ("config.log.durability=async", "a cluster is always durable"),
        ("cluster.id=12ab", "Does not match pattern"),
        ("tls.source=none", "must be one of the following"),
        ("tls.source=existing-secret", "name it in tls.existingSecret"),
        ("tls.existingSecret=mine", "with tls.source existing-secret only"),
        ("clientTls.enabled=true", "name a Secret in clientTls.existingSecret, or an issuer"),
        ("clientTls.existingSecret=mine", "clientTls.enabled is false"),
        (f"{TLS},clientTls.certManager.issuerRef.name=x", "give one of them"),
        (f"{TLS},jobs.bulkSchedule.enabled=true", "connects without TLS"),
        ("access.enabled=true", "needs clientTls.enabled"),
        (f"{TLS},access.enabled=true", "nobody could log in"),
        (f"{ACCESS},access.administrators={{}}", "administrators"),
        (f"{ACCESS},access.administrators[0]=two words", "Does not match pattern"),
        (f"{ACCESS},monitoring.serviceMonitor.enabled=true", "serviceMonitor.loginSecret"),
        (f"{ACCESS},config.tls.metrics=false", "would be sent in the clear"),
        (
            f"{ACCESS},access.tokenKeys.existingSecret=a,access.tokenKeys.existingConfigMap=b",
            "existingConfigMap: give one of them",
        ),
        ("access.existingSecret=Not a name", "Does not match pattern"),
        ("access.password=secret", "password is not allowed"),
        ("config.access.is_on=true", "is_on is not allowed"),
        (
            f"{ISSUER}=x,tls.certManager.issuerRef.name=x",
            "have the same issuer",
        ),
        ("drain.gracePeriodSeconds=20", "gracePeriodSeconds is 20: linger, hand-over and twice"),
        ("config.node.drain_ms=60000", "gracePeriodSeconds is 90"),
        ("jobs.source.ordinal=3", "the last node is 2"),
        ("jobs.bulkSchedule.enabled=true", "needs existingClaim, files and job"),
        ("jobs.audit.schedule=nightly", "Does not match pattern"),
        ("extraEnv[0].name=HOURWHEEL_NODE__ID,extraEnv[0].value=x", "extraEnv.0.name"),
        ("extraEnv[0].name=A", "at least 2 properties"),
        ("networkPolicy.clients[0].podSelectors.a=b", "podSelectors is not allowed"),
        ("fullnameOverride=Upper", "Does not match pattern"),
        (f"fullnameOverride={'a' * 41}", "less than or equal to 40"),
        ("probes.liveness.periodSeconds=0", "greater than or equal to 1"),
        ("spread.hostname=Never", "must be one of the following"),
        ("image.digest=latest", "Does not match pattern"),
    ],
)
def test_values_are_refused_with_the_reason_when(options: str, reason: str) -> None:
    with pytest.raises(Refused) as caught:
        render(f"--set={options}")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("options", "api"),
    [
        ("replicas=3", APIS[0]),
        (f"replicas=1,{ISSUER}=clients", APIS[0]),
        ("monitoring.serviceMonitor.enabled=true", APIS[1]),
        ("monitoring.prometheusRule.enabled=true", APIS[1]),
    ],
)
def test_what_the_cluster_has_not_is_refused(options: str, api: str) -> None:
    others = tuple(one for one in APIS if one != api)
    with pytest.raises(Refused, match=f"{api}.*--api-versions {api}"):
        render(f"--set={options}", apis=others)


def test_one_node_and_certificates_of_ones_own_need_no_cert_manager() -> None:
    assert render("--set=replicas=1", apis=())
    own = "tls.source=existing-secret,tls.existingSecret=mine"
    assert render(f"--set={own}", apis=())


def test_each_case_says_what_it_is_for() -> None:
    for case in CASES:
        assert (CHART / "ci" / case).read_text().startswith("# "), case
