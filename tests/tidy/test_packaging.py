"""What packaging/ says fits the tree, and holds to what we promise of it."""

import configparser
import fnmatch
import json
import os
import re
import tomllib
from typing import Any, Final

import pytest
import yaml

import hourwheel
from node.config import model as config
from node.config.checks import cluster_nodes
from tests.support.containerfile import Containerfile
from tests.tidy import tree

CONTAINERFILE: Final = Containerfile.read(tree.ROOT / "packaging" / "Containerfile")
SPARK: Final = Containerfile.read(tree.ROOT / "packaging" / "spark.Containerfile")
COMPOSE: Final[dict[str, Any]] = yaml.safe_load(tree.text("packaging/compose.yaml"))
SERVICES: Final[dict[str, dict[str, Any]]] = COMPOSE["services"]
SECURE: Final[dict[str, Any]] = yaml.safe_load(tree.text("packaging/compose.secure.yaml"))
NODES: Final = sorted(name for name in SERVICES if name.startswith("node-"))
PINNED: Final = re.compile(r"docker\.io/[\w/.-]+:[\w.-]+@sha256:[0-9a-f]{64}")
OURS: Final = "hourwheel:${HOURWHEEL_TAG:-local}"


def default(section: str, key: str) -> Any:
    """What a key of the configuration is where nothing is said."""
    return getattr(getattr(config.NodeConfig.of({}), section), key)


# --- the image ------------------------------------------------------------------------------------


def test_images_are_pinned_by_tag_and_digest() -> None:
    images = CONTAINERFILE.images()
    assert len(images) == 2
    assert all(PINNED.fullmatch(image) for image in images), images
    assert SPARK.images() == images[:1]
    foreign = {one["image"] for one in SERVICES.values()} - {OURS}
    assert foreign
    assert all(PINNED.fullmatch(image) for image in foreign), foreign


def test_what_is_copied_into_the_image_is_in_the_tree_and_not_ignored() -> None:
    ignored = tree.text(".dockerignore").split()
    for path in {*CONTAINERFILE.copied(), *SPARK.copied()}:
        there = [one for one in tree.files() if one == path or one.startswith(f"{path}/")]
        assert there, path
        parts = {part for one in there for part in one.split("/")}
        hidden = [
            (part, pattern)
            for part in parts
            for pattern in ignored
            if fnmatch.fnmatchcase(part, pattern.removeprefix("**/"))
        ]
        assert hidden == [], path


def test_all_that_the_wheel_is_built_of_is_copied_into_the_image() -> None:
    (rooms,) = re.findall(r"^ROOMS = \(([^)]*)\)", tree.text("setup.py"), re.MULTILINE)
    grafted = re.findall(r"^graft (\w+)", tree.text("MANIFEST.in"), re.MULTILINE)
    licences = tree.pyproject()["project"]["license-files"]
    for copied in (set(CONTAINERFILE.copied()), set(SPARK.copied())):
        assert set(re.findall(r"\w+", rooms)) <= copied
        assert set(grafted) <= copied
        assert {"hourwheel", "pyproject.toml", "setup.py", "README.md", *licences} <= copied


def test_packages_are_installed_by_hash_or_from_what_was() -> None:
    installs = [
        command
        for one in (*CONTAINERFILE.all("RUN"), *SPARK.all("RUN"))
        for command in one.text.split("&&")
        if re.search(r"\bpip\b.* (install|wheel)\b", command)
    ]
    assert len(installs) == 7
    for command in installs:
        assert "--require-hashes --no-deps" in command or "--no-index" in command, command
        if " wheel " in command or " -e " in command:  # else it would fetch what builds them
            assert "--no-build-isolation" in command, command


def test_what_is_locked_is_installed_without_looking_up_what_it_asks_for() -> None:
    """A newer release of a package that is asked for with an extra would be refused: no hash."""
    installs = [line for line in tree.text("Makefile").splitlines() if "--require-hashes" in line]
    assert len(installs) == 11
    for command in installs:
        assert "--require-hashes --no-deps" in command, command


def test_image_runs_without_root_and_writes_to_one_volume_only() -> None:
    image = CONTAINERFILE.last_stage()
    user, group = image.the("USER").text.split(":")
    assert int(user) == int(group) > 0
    (volume,) = image.the("VOLUME").words
    settings = tomllib.loads(tree.text("packaging/hourwheel.toml"))
    assert settings["node"]["data_directory"] == volume
    assert f"-o {user} -g {group} -m 0700 {volume} " in image.the("RUN").text
    assert image.the("STOPSIGNAL").text == "SIGTERM"


def test_jobs_run_as_the_user_whose_files_they_read() -> None:
    assert SPARK.the("USER").text == CONTAINERFILE.last_stage().the("USER").text
    assert json.loads(SPARK.the("ENTRYPOINT").text)[-1] == "hourwheel"


def test_image_publishes_the_ports_of_its_configuration() -> None:
    settings = tomllib.loads(tree.text("packaging/hourwheel.toml"))["node"]
    ports = [settings[key].split(":")[1] for key in ("listen", "metrics_listen")]
    assert CONTAINERFILE.the("EXPOSE").text.split()[:2] == ports
    assert default("node", "listen").split(":")[1] == ports[0]  # where the health check asks


# --- three of them --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SERVICES)
def test_services_are_confined(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "user" not in service  # the image's own, which is not root
    assert not service.get("privileged")
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert service.get("network_mode", "") in {"", "none"}


@pytest.mark.parametrize("name", SERVICES)
def test_services_mount_files_of_the_tree_for_reading_and_volumes_that_are_declared(
    name: str,
) -> None:
    for mount in SERVICES[name]["volumes"]:
        source, _, *mode = mount.split(":")
        if source.startswith("."):
            assert os.path.normpath(f"packaging/{source}") in tree.files()
            assert mode == ["ro"]
        else:
            assert source in COMPOSE["volumes"]


def test_services_that_stay_have_bounds_and_a_health_check() -> None:
    staying = {name: one for name, one in SERVICES.items() if one["restart"] != "no"}
    assert set(staying) == {*NODES, "prometheus"}
    for name, service in staying.items():
        assert service["mem_limit"], name
        assert service["pids_limit"], name
        assert service["image"] == OURS or service["healthcheck"]["test"], name


def test_nodes_are_those_of_their_configuration_and_prometheus_asks_them_all() -> None:
    settings = tomllib.loads(tree.text("packaging/compose/cluster.toml"))
    checked = config.NodeConfig.of(
        {**settings, "node": {**settings["node"], "id": NODES[0]}}
        | {"cluster": {**settings["cluster"], "tls_certificate_file": "a", "tls_key_file": "b"}}
    )
    assert sorted(cluster_nodes(checked.cluster.nodes)) == NODES
    for node, addresses in cluster_nodes(checked.cluster.nodes).items():
        assert {address.split(":")[0] for address in addresses} == {node}
    assert SERVICES["certificates"]["command"][1:] == NODES
    scraped = yaml.safe_load(tree.text("packaging/compose/prometheus.yml"))
    (job,) = scraped["scrape_configs"]
    port = checked.node.metrics_listen.split(":")[1]
    assert job["static_configs"] == [{"targets": [f"{node}:{port}" for node in NODES]}]


def test_secure_variant_adds_certificates_users_and_nothing_that_loosens() -> None:
    services = SECURE["services"]
    assert set(services) == {"certificates", *NODES, "prometheus"}
    added = {key for one in services.values() for key in one}
    assert added == {"entrypoint", "command", "volumes", "environment", "depends_on"}
    kept = {"certificates", *NODES}  # of which each variant has its own
    assert set(SECURE["volumes"]) == {"authority", *kept}
    assert {SECURE["volumes"][one]["name"] for one in kept} == {
        f"{COMPOSE['name']}_secure-{one}" for one in kept
    }
    said = {re.sub(r"\bnode-\d", "*", str(services[node])) for node in NODES}
    assert len(said) == 1
    settings = tomllib.loads(tree.text("packaging/compose/cluster.toml"))
    for node in NODES:
        environ = SERVICES[node]["environment"] | services[node]["environment"]
        values = {**settings}
        for name, value in environ.items():
            section, nested, key = name.removeprefix("HOURWHEEL_").lower().partition("__")
            if nested:
                values[section] = {**values.get(section, {}), key: value}
        found = config.NodeConfig.of(values)
        assert found.tls.is_on
        assert found.access.is_on
        assert found.cluster.tls_certificate_file == found.tls.certificate_file
        assert found.cluster.tls_key_file == found.tls.key_file
    assert services["certificates"]["command"][-len(NODES) :] == NODES


def test_prometheus_asks_the_secure_nodes_over_tls_and_knows_their_authority() -> None:
    plain, secure = (
        yaml.safe_load(tree.text(f"packaging/compose/{name}.yml"))
        for name in ("prometheus", "prometheus.secure")
    )
    (job,) = secure["scrape_configs"]
    assert job.pop("scheme") == "https"
    folder, _, file = job.pop("tls_config")["ca_file"].rpartition("/")
    assert secure == plain
    assert file == "authority.pem"
    prometheus = SECURE["services"]["prometheus"]
    assert f"authority:{folder}:ro" in prometheus["volumes"]
    public = SECURE["services"]["certificates"]["command"][1]
    assert SECURE["services"]["certificates"]["volumes"] == [f"authority:{public}"]
    for mount in prometheus["volumes"]:
        if mount.startswith("."):
            source, target, mode = mount.split(":")
            assert os.path.normpath(f"packaging/{source}") in tree.files()
            assert f"--config.file={target}" in prometheus["command"]
            assert mode == "ro"
    others = [one for one in prometheus["command"] if "config.file" not in one]
    assert others == [one for one in SERVICES["prometheus"]["command"] if "config.file" not in one]


def test_nodes_differ_in_their_names_only() -> None:
    said = {re.sub(r"\bnode-\d|:74\d0:", "*", str(SERVICES[node])) for node in NODES}
    assert len(said) == 1
    published = {port for node in NODES for port in SERVICES[node]["ports"]}
    assert len(published) == len(NODES)


# --- under systemd --------------------------------------------------------------------------------


def unit() -> configparser.ConfigParser:
    """packaging/systemd/hourwheel.service, as far as no key stands twice."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read_string(tree.text("packaging/systemd/hourwheel.service"))
    return parser


def test_whoever_stops_a_node_waits_longer_than_it_drains() -> None:
    drain_s = default("node", "drain_ms") / 1_000
    waits = [service["stop_grace_period"] for name, service in SERVICES.items() if name in NODES]
    waits.append(unit()["Service"]["TimeoutStopSec"])
    assert all(int(wait.removesuffix("s")) >= 2 * drain_s for wait in waits), waits


def test_unit_tells_the_broker_alone_to_stop() -> None:
    assert unit()["Service"]["KillMode"] == "mixed"


def test_unit_and_its_user_agree() -> None:
    kind, name, _, *_, home = (
        tree.text("packaging/systemd/hourwheel.sysusers").split("\n")[1].split()
    )
    service = unit()["Service"]
    assert (kind, name) == ("u", service["User"])
    assert home == service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"


def test_version_is_one_that_a_tag_can_have() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+([ab]|rc)?\d*", hourwheel.__version__)
