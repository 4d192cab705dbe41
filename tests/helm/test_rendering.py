"""What Helm makes of the chart, for each file of ci/."""

import copy
import json
import os
import re
import shutil
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml
from kubernetes_validate import utils

import hourwheel
from node.config.checks import cluster_nodes
from node.config.model import NodeConfig
from replication.raft.security import names_of
from tests.support.containerfile import Containerfile
from tests.support.helm_chart import (
    CASES,
    CHART,
    NAMESPACE,
    RELEASE,
    Object,
    helm,
    objects,
    only,
    pods,
    render,
    render_case,
)
from tests.tidy import tree

GOLDEN: Final = Path(__file__).parent / "golden"
KUBERNETES: Final = ("1.28", "1.31", "1.34", "1.37")
CONFIG_MAP_BYTES_MAX: Final = 1 << 20
OTHERS: Final = {"Certificate", "Issuer", "ServiceMonitor", "PrometheusRule"}
"""Kinds that Kubernetes has no schema of."""
IMAGE: Final = Containerfile.read(tree.ROOT / "packaging" / "Containerfile").last_stage()
THREE: Final = "three-nodes-values.yaml"
FIVE: Final = "five-nodes-existing-secret-values.yaml"
ONE: Final = "one-node-values.yaml"
JOBS: Final = "jobs-values.yaml"
SECURE: Final = "secure-values.yaml"
OWN_SECURE: Final = "secure-client-certificates-values.yaml"
SECURES: Final = (SECURE, OWN_SECURE)


def node_pod(case: str) -> Object:
    found: Object = only(render_case(case), "StatefulSet")["spec"]["template"]["spec"]
    return found


def config_of(rendered: str, node: str = "") -> NodeConfig:
    """The configuration that a pod runs with, checked as a node does it."""
    stateful = only(rendered, "StatefulSet")
    name = stateful["metadata"]["name"]
    text = only(rendered, "ConfigMap", name)["data"]["hourwheel.toml"]
    found = tomllib.loads(text)
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    for one in container["env"]:
        section, nested, key = one["name"].removeprefix("HOURWHEEL_").lower().partition("__")
        if nested:
            value = one["value"].replace("$(POD_NAME)", node or f"{name}-0")
            found.setdefault(section, {})[key] = value
    return NodeConfig.of(found)


# --- all of them ----------------------------------------------------------------------------------


def test_chart_is_that_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == hourwheel.__version__


@pytest.mark.parametrize("case", CASES)
def test_helm_finds_nothing_when_it_is_strict(case: str) -> None:
    done = helm("lint", "--strict", str(CHART), f"--values={CHART / 'ci' / case}")
    assert done.returncode == 0, done.stdout + done.stderr


def _own(rendered: str) -> str:
    """Without what the chart takes as it is: alerts and dashboards."""
    parts = re.split(r"^---\n", rendered, flags=re.MULTILINE)
    taken = re.compile(r"^kind: PrometheusRule$|^    grafana_dashboard:", re.MULTILINE)
    return "---\n".join(part for part in parts if not taken.search(part))


@pytest.mark.parametrize("case", CASES)
def test_rendering_is_the_golden_one(case: str) -> None:
    made = "\n".join(line.rstrip() for line in _own(render_case(case)).splitlines()) + "\n"
    path = GOLDEN / case.replace("-values.yaml", ".txt")
    if os.environ.get("HELM_WRITE"):
        path.write_text(made)
    assert made == path.read_text(), "HELM_WRITE=1 writes it anew"


def test_no_golden_rendering_is_left_over() -> None:
    cases = {case.replace("-values.yaml", ".txt") for case in CASES}
    assert {path.name for path in GOLDEN.iterdir()} == cases


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_all_objects(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # It reads a megabyte for each object.
    monkeypatch.setattr(utils, "schema_contents", cache(utils.schema_contents))
    found = {json.dumps(one): one for case in CASES for one in objects(render_case(case))}
    for one in found.values():
        if one["kind"] not in OTHERS:
            kubernetes_validate.validate(one, version, strict=True)
    kinds = {one["kind"] for one in found.values()} - OTHERS
    assert kinds >= {"StatefulSet", "Service", "ConfigMap", "NetworkPolicy", "Pod", "CronJob"}


def test_kubernetes_refuses_what_is_misspelled() -> None:
    broken = copy.deepcopy(only(render_case(THREE), "StatefulSet"))
    broken["spec"]["minReadySecond"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES[0], strict=True)


@pytest.mark.parametrize("case", CASES)
def test_pods_are_confined(case: str) -> None:
    for kind, pod in pods(render_case(case)):
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True, kind
        assert security["runAsUser"] == security["fsGroup"] == int(IMAGE.the("USER").text[:5])
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False  # variables that begin with HOURWHEEL_
        assert not any(key.startswith("host") for key in pod), kind
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            memory = container["resources"]["limits"]["memory"]
            assert kind != "StatefulSet" or container["resources"]["requests"]["memory"] == memory


@pytest.mark.parametrize("case", CASES)
def test_secrets_are_mounted_and_nothing_else(case: str) -> None:
    for kind, pod in pods(render_case(case)):
        for container in pod["containers"]:
            assert "secret" not in json.dumps(container.get("env", [])).lower(), kind
            assert "envFrom" not in container
    maps = [one for one in objects(render_case(case)) if one["kind"] == "ConfigMap"]
    assert not any(re.search(r"PRIVATE KEY|secret_file", json.dumps(one)) for one in maps)
    assert not any(one["kind"] == "Secret" for one in objects(render_case(case)))


@pytest.mark.parametrize("case", CASES)
def test_everything_lies_in_the_namespace_and_selects_its_own_pods(case: str) -> None:
    found = objects(render_case(case))
    assert {one["metadata"]["namespace"] for one in found} == {NAMESPACE}
    stateful = only(render_case(case), "StatefulSet")["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    selectors = [stateful["selector"]["matchLabels"]]
    selectors += [one["spec"]["selector"] for one in found if one["kind"] == "Service"]
    selectors += [
        one["spec"][key]["matchLabels"]
        for one in found
        for kind, key in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector"))
        if one["kind"] == kind
    ]
    for selector in selectors:
        assert selector.items() <= labels.items()
    others = [one for one in found if one["kind"] in {"Pod", "CronJob"}]
    for one in others:
        theirs = one if one["kind"] == "Pod" else one["spec"]["jobTemplate"]["spec"]["template"]
        assert not selectors[0].items() <= theirs["metadata"]["labels"].items()


@pytest.mark.parametrize("case", CASES)
def test_names_are_short_enough_for_what_is_made_of_them(case: str) -> None:
    for one in objects(render_case(case)):
        assert len(one["metadata"]["name"]) <= 63
    long = render("--set=nameOverride=" + "n" * 40, "--set=jobs.bulkSchedule.enabled=false")
    name = only(long, "StatefulSet")["metadata"]["name"]
    assert len(name) <= 40  # and "-controller-revision-hash", "-schedule-<minutes>-<pod>"


# --- the nodes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_configuration_is_one_that_each_node_takes(case: str) -> None:
    rendered = render_case(case)
    stateful = only(rendered, "StatefulSet")
    name, replicas = stateful["metadata"]["name"], stateful["spec"]["replicas"]
    pod_names = [f"{name}-{ordinal}" for ordinal in range(replicas)]
    for pod_name in pod_names:
        config = config_of(rendered, pod_name)
        nodes = cluster_nodes(config.cluster.nodes)
        assert sorted(nodes) == (pod_names if replicas > 1 else [])
    for pod_name, addresses in nodes.items():
        service = stateful["spec"]["serviceName"]
        for address in addresses:
            assert address.startswith(f"{pod_name}.{service}.{NAMESPACE}.svc.")


def test_values_of_config_arrive_as_they_are() -> None:
    config = config_of(render_case(FIVE))
    assert config.cluster.min_in_sync == 3
    assert config.log.retention_ms == 604_800_000
    assert config.node.drain_ms == 20_000
    assert config.clock.slew_percent_max == 2.5
    assert config.telemetry.log_level == "warning"
    assert config.cluster.id == "0123456789abcdef" * 2
    odd = render(
        "--set-string=config.telemetry.log_format=json", "--set=config.log.segment_bytes=4294967295"
    )
    assert config_of(odd).log.segment_bytes == 4_294_967_295


def test_configuration_fits_the_pod() -> None:
    pod = node_pod(THREE)
    config = config_of(render_case(THREE))
    (container,) = pod["containers"]
    mounts = {one["mountPath"] for one in container["volumeMounts"]}
    assert container["args"] == ["--config", "/etc/hourwheel/hourwheel.toml"]
    assert "/etc/hourwheel/hourwheel.toml" in mounts
    cluster = config.cluster
    files = {cluster.tls_certificate_file, cluster.tls_key_file, cluster.tls_authority_file}
    assert {str(Path(file).parent) for file in files} <= mounts  # a folder: it may change
    assert str(config.node.data_directory.parent) in mounts
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"clients": 7400, "metrics": 7401, "data": 7402, "control": 7403}
    assert config.node.listen == "0.0.0.0:7400"
    assert config.node.metrics_listen == "0.0.0.0:7401"
    assert [cluster.data_listen, cluster.control_listen] == ["0.0.0.0:7402", "0.0.0.0:7403"]


def test_pods_start_together_and_are_replaced_one_by_one() -> None:
    spec = only(render_case(THREE), "StatefulSet")["spec"]
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["updateStrategy"] == {"type": "RollingUpdate"}
    assert spec["minReadySeconds"] > 0
    kept = spec["persistentVolumeClaimRetentionPolicy"]
    assert set(kept.values()) == {"Retain"}
    assert only(render_case(THREE), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_nodes_find_each_other_before_they_are_ready_and_clients_only_those_that_are() -> None:
    rendered = render_case(THREE)
    headless = only(rendered, "Service", "-nodes")["spec"]
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"] is True
    clients = only(rendered, "Service", "hourwheel")["spec"]
    assert "publishNotReadyAddresses" not in clients
    assert [port["port"] for port in clients["ports"]] == [7400]


def test_pods_are_replaced_when_the_configuration_changes_and_only_then() -> None:
    def checksum(*words: str) -> str:
        template = only(render(*words), "StatefulSet")["spec"]["template"]["metadata"]
        return str(template["annotations"]["checksum/config"])

    assert checksum() == checksum("--set=commonLabels.team=a", "--set=tests.delayMs=9000")
    assert checksum() != checksum("--set=config.topics.queue_count=2")


def test_machines_are_spread_over() -> None:
    constraints = node_pod(THREE)["topologySpreadConstraints"]
    told = {one["topologyKey"]: one["whenUnsatisfiable"] for one in constraints}
    assert told == {
        "kubernetes.io/hostname": "DoNotSchedule",
        "topology.kubernetes.io/zone": "ScheduleAnyway",
    }
    assert "topologySpreadConstraints" not in node_pod(ONE)


def test_cluster_id_is_of_this_release_and_this_number_of_nodes() -> None:
    def cluster_id(*words: str) -> str:
        return config_of(render(*words)).cluster.id

    ids = [cluster_id(), cluster_id("--set=replicas=5"), cluster_id("--set=nameOverride=x")]
    assert len(set(ids)) == 3
    assert cluster_id("--set=config.topics.queue_count=2") == ids[0]
    assert cluster_id(f"--set=cluster.id={'0' * 32}") == "0" * 32


# --- certificates ---------------------------------------------------------------------------------


def test_each_node_has_a_certificate_for_its_id_and_its_host() -> None:
    rendered = render_case(THREE)
    nodes = cluster_nodes(config_of(rendered).cluster.nodes)
    found = [one for one in objects(rendered) if one["kind"] == "Certificate"]
    of_nodes = {one["metadata"]["name"]: one["spec"] for one in found if "isCA" not in one["spec"]}
    assert set(of_nodes) == set(nodes)
    for node, spec in of_nodes.items():
        certified = names_of({"subjectAltName": [("DNS", name) for name in spec["dnsNames"]]})
        assert node in certified
        assert nodes[node].data.split(":")[0] in certified
        assert set(spec["usages"]) >= {"server auth", "client auth"}
    (authority,) = (one["spec"] for one in found if one["spec"].get("isCA"))
    assert authority["privateKey"]["rotationPolicy"] == "Never"


@pytest.mark.parametrize("case", [THREE, FIVE])
def test_container_finds_its_key_and_sees_no_other_where_they_are_isolated(case: str) -> None:
    pod = node_pod(case)
    (container,) = pod["containers"]
    mounts = [one for one in container["volumeMounts"] if one["name"] == "tls"]
    node = only(render_case(case), "StatefulSet")["metadata"]["name"] + "-1"
    if case == FIVE:
        parts = {one["subPathExpr"] for one in mounts}
        assert parts == {"ca.crt", "$(POD_NAME).crt", "$(POD_NAME).key"}
        files = {one["mountPath"] for one in mounts}
    else:  # what is mounted by parts would never change
        (mount,) = mounts
        assert "subPath" not in json.dumps(mount)
        files = {f"{mount['mountPath']}/{one}" for one in ("ca.crt", f"{node}.crt", f"{node}.key")}
    cluster = config_of(render_case(case), node).cluster
    told = {cluster.tls_certificate_file, cluster.tls_key_file, cluster.tls_authority_file}
    assert told == files
    (volume,) = (one["projected"] for one in pod["volumes"] if one["name"] == "tls")
    assert volume["defaultMode"] == 0o440
    if case == FIVE:
        assert volume["sources"] == [{"secret": {"name": "timers-certificates"}}]
        return
    paths = [item["path"] for one in volume["sources"] for item in one["secret"]["items"]]
    nodes = cluster_nodes(config_of(render_case(case)).cluster.nodes)
    assert sorted(paths) == sorted(
        ["ca.crt", *(f"{node}.{end}" for node in nodes for end in ("crt", "key"))]
    )
    secrets = {one["secret"]["name"] for one in volume["sources"]}
    made = [one["spec"] for one in objects(render_case(case)) if one["kind"] == "Certificate"]
    assert secrets < {one["secretName"] for one in made}


def test_node_alone_has_no_certificates_and_no_peers() -> None:
    kinds = {one["kind"] for one in objects(render_case(ONE))}
    assert kinds & {"Certificate", "Issuer", "PodDisruptionBudget"} == set()
    policy = only(render_case(ONE), "NetworkPolicy")["spec"]
    assert [one["ports"] for one in policy["ingress"]] == [
        [{"port": "clients"}],
        [{"port": "metrics"}],
    ]


# --- TLS towards clients, and access control ------------------------------------------------------


def test_certificate_for_clients_names_what_they_connect_to() -> None:
    rendered = render_case(SECURE)
    certificate = only(rendered, "Certificate", "-clients")["spec"]
    assert certificate["issuerRef"]["name"] == "clients"
    names = set(certificate["dnsNames"])
    nodes = cluster_nodes(config_of(rendered).cluster.nodes)
    assert {one.api.split(":")[0] for one in nodes.values()} < names
    (test,) = only(rendered, "Pod")["spec"]["containers"]
    environ = {one["name"]: one["value"] for one in test["env"]}
    assert environ["HOURWHEEL_SERVER"].split(":")[0] in names
    assert "timers.example" in names
    assert not names & set(nodes)  # who has one with a node's id may be that node


@pytest.mark.parametrize("case", SECURES)
def test_secrets_of_clients_are_mounted_as_folders_that_follow_changes(case: str) -> None:
    config, pod = config_of(render_case(case)), node_pod(case)
    volumes = {one["name"]: one for one in pod["volumes"]}
    mounts = {one["mountPath"]: one for one in pod["containers"][0]["volumeMounts"]}
    files = [
        config.tls.certificate_file,
        config.tls.key_file,
        config.tls.authority_file,
        config.tls.client_authority_file,
        config.authentication.users_file,
        config.authentication.token_keys_file,
    ]
    found = {}
    for file in filter(None, files):
        mount = mounts[str(Path(file).parent)]
        assert mount["readOnly"] is True
        assert "subPath" not in json.dumps(mount)
        volume = volumes[mount["name"]]
        source = volume.get("secret") or volume["configMap"]
        items = [one["path"] for one in source.get("items", ())]
        assert Path(file).name in (items or ["tls.crt", "tls.key", "ca.crt"])
        found[Path(file).name] = source.get("secretName") or source["name"]
    if case == SECURE:
        assert found == {
            **dict.fromkeys(("tls.crt", "tls.key", "ca.crt"), "r-hourwheel-clients-tls"),
            "users": "hourwheel-users",
            "keys.json": "token-keys",
        }
        assert config.access.administrators == "admin deploy"
    else:
        assert config.tls.client_certificates == "required"
        assert found["ca.crt"] == "clients-authority"  # read behind the node's own
    assert config.access.is_on


def test_administrators_secret_is_seen_by_the_test_alone() -> None:
    for kind, pod in pods(render_case(SECURE)):
        assert ("admin.login" in json.dumps(pod)) == (kind == "Pod"), kind
    (test,) = only(render_case(SECURE), "Pod")["spec"]["containers"]
    assert "tls.key" not in json.dumps(only(render_case(SECURE), "Pod"))
    assert {one["name"] for one in test["env"]} > {"HOURWHEEL_TLS_CA", "HOURWHEEL_LOGIN_FILE"}


def test_nobody_is_tested_who_would_not_be_let_in() -> None:
    assert not any(one["kind"] == "Pod" for one in objects(render_case(OWN_SECURE)))


@pytest.mark.parametrize(("case", "is_tls"), [(SECURE, True), (OWN_SECURE, False), (THREE, False)])
def test_probes_and_prometheus_speak_what_the_node_speaks(case: str, is_tls: bool) -> None:
    rendered = render_case(case)
    config = config_of(rendered)
    assert (config.tls.is_on and config.tls.metrics) == is_tls
    (container,) = node_pod(case)["containers"]
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[kind]["httpGet"].get("scheme", "HTTP") == ("HTTPS" if is_tls else "HTTP")
    if case == THREE:
        return
    (endpoint,) = only(rendered, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint.get("scheme", "http") == ("https" if is_tls else "http")
    assert ("basicAuth" in endpoint) == config.access.metrics
    if is_tls:
        names = only(rendered, "Certificate", "-clients")["spec"]["dnsNames"]
        assert endpoint["tlsConfig"]["serverName"] in names


# --- who reaches whom -----------------------------------------------------------------------------


def test_only_nodes_reach_the_ports_of_nodes() -> None:
    policy = only(render_case(THREE), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    by_port = {port["port"]: rule["from"] for rule in policy["ingress"] for port in rule["ports"]}
    assert by_port["data"] == by_port["control"]
    (peer,) = by_port["data"]
    assert peer["podSelector"] == policy["podSelector"]
    clients = [one["podSelector"]["matchLabels"] for one in by_port["clients"]]
    assert {f"{RELEASE}-hourwheel-client": "true"} in clients
    test = only(render_case(THREE), "Pod")["metadata"]["labels"]
    assert any(labels.items() <= test.items() for labels in clients)


def test_clients_and_metrics_are_for_those_that_values_name() -> None:
    policy = only(render_case(FIVE), "NetworkPolicy")["spec"]
    peers = policy["ingress"][0]["from"]
    assert any(one.get("namespaceSelector") for one in peers)
    assert not any("timers-client" in json.dumps(one) for one in peers)
    assert policy["ingress"][1]["from"] == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    ]


# --- monitoring -----------------------------------------------------------------------------------


def test_prometheus_finds_the_nodes_by_their_service() -> None:
    rendered = render_case("monitoring-values.yaml")
    monitor = only(rendered, "ServiceMonitor")
    service = only(rendered, "Service", "-nodes")
    selector = monitor["spec"]["selector"]["matchLabels"]
    assert selector.items() <= service["metadata"]["labels"].items()
    assert (
        not selector.items() <= only(rendered, "Service", "hourwheel")["metadata"]["labels"].items()
    )
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_alerts_and_dashboards_are_taken_as_they_are(tmp_path: Path) -> None:
    chart = tmp_path / "hourwheel"
    shutil.copytree(CHART, chart)
    rule = {
        "alert": "Late",
        "expr": 'sum(x{a="b"}) > 1\nand on() y',
        "annotations": {"summary": "{{ $labels.node }} is late: {{ $value | humanize }}"},
    }
    groups = {"groups": [{"name": "hourwheel", "rules": [rule]}]}
    (chart / "files" / "alerts.yaml").write_text(yaml.safe_dump(groups))
    dashboards = chart / "files" / "dashboards"
    shutil.rmtree(dashboards, ignore_errors=True)
    dashboards.mkdir()
    board = {"title": "Overview {{ x }}", "panels": [{"legendFormat": "{{node}}"}], "uid": "a"}
    (dashboards / "delay_wheel.json").write_text(json.dumps(board, indent=2))
    switches = ("prometheusRule", "dashboards")
    rendered = render(*(f"--set=monitoring.{one}.enabled=true" for one in switches), chart=chart)
    assert only(rendered, "PrometheusRule")["spec"] == groups
    found = only(rendered, "ConfigMap", "delay-wheel")
    assert json.loads(found["data"]["delay_wheel.json"]) == board
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_alerts_and_dashboards_of_the_chart_are_those_of_its_files() -> None:
    rendered = render_case("monitoring-values.yaml")
    files = CHART / "files"
    alerts = yaml.safe_load((files / "alerts.yaml").read_text())
    assert only(rendered, "PrometheusRule")["spec"] == alerts
    boards = [
        one
        for one in objects(rendered)
        if one["kind"] == "ConfigMap" and "grafana_dashboard" in one["metadata"]["labels"]
    ]
    told = {name: json.loads(text) for one in boards for name, text in one["data"].items()}
    paths = sorted((files / "dashboards").iterdir())
    assert told == {path.name: json.loads(path.read_text()) for path in paths}
    assert {one["metadata"]["annotations"]["grafana_folder"] for one in boards} == {"Hourwheel"}
    assert max(len(json.dumps(one)) for one in boards) < CONFIG_MAP_BYTES_MAX


# --- jobs -----------------------------------------------------------------------------------------


def jobs(case: str) -> dict[str, Any]:
    name = only(render_case(case), "StatefulSet")["metadata"]["name"]
    return {
        one["metadata"]["name"].removeprefix(f"{name}-"): one["spec"]
        for one in objects(render_case(case))
        if one["kind"] == "CronJob"
    }


def test_jobs_read_the_volume_of_a_node_on_its_machine() -> None:
    found = jobs(JOBS)
    assert set(found) == {"audit", "export", "forecast", "schedule"}
    claims = only(render_case(JOBS), "StatefulSet")["spec"]["volumeClaimTemplates"]
    name = only(render_case(JOBS), "StatefulSet")["metadata"]["name"]
    for job in ("audit", "export", "forecast"):
        pod = found[job]["jobTemplate"]["spec"]["template"]["spec"]
        volumes = {one["name"]: one for one in pod["volumes"]}
        claim = volumes["source"]["persistentVolumeClaim"]["claimName"]
        assert claim == f"{claims[0]['metadata']['name']}-{name}-2"
        (term,) = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["labelSelector"]["matchLabels"] == {
            "statefulset.kubernetes.io/pod-name": f"{name}-2"
        }
        (container,) = pod["containers"]
        mounts = {one["name"]: one for one in container["volumeMounts"]}
        assert mounts["source"]["readOnly"] is True
        data = config_of(render_case(JOBS)).node.data_directory
        volume = node_pod(JOBS)["containers"][0]["volumeMounts"][0]["mountPath"]
        assert container["args"][1] == f"/source/{data.relative_to(volume)}"
    assert found["schedule"]["suspend"] is True
    assert found["audit"]["suspend"] is False
    assert {one["concurrencyPolicy"] for one in found.values()} == {"Forbid"}
    output = only(render_case(JOBS), "PersistentVolumeClaim")["metadata"]
    assert output["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_jobs_read_copies_where_there_are_some() -> None:
    found = jobs("jobs-on-copies-values.yaml")
    pod = found["audit"]["jobTemplate"]["spec"]["template"]["spec"]
    assert "affinity" not in pod
    assert pod["containers"][0]["args"][1] == "/source"
    kinds = [one["kind"] for one in objects(render_case("jobs-on-copies-values.yaml"))]
    assert "PersistentVolumeClaim" not in kinds
