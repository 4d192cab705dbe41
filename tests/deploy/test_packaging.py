"""What packaging/ starts, without a container runtime and without systemd: the same commands with
the same files, on ports of loopback and in a temporary folder."""

import configparser
import json
import os
import shlex
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import yaml

from tests.support import toolchains
from tests.support.addresses import free_address
from tests.support.containerfile import Containerfile
from tests.tidy import tree

PACKAGING: Final = tree.ROOT / "packaging"
IMAGE: Final = Containerfile.read(PACKAGING / "Containerfile").last_stage()
COMMANDS: Final = Path(sys.executable).parent
HANG_S: Final = 120.0
TRIES_MAX: Final = 100
EXPOSURE_MAX: Final = 20
"""Of `systemd-analyze security`, in tenths: below 2.0 it says "OK"."""


def environ_with(**values: str) -> dict[str, str]:
    """The environment, without what the tree or a user has set there, and with `values`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "HOURWHEEL_"))}
    return {**kept, **values}


def run(*words: str, **values: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the environment that the tests run in, to its end."""
    return subprocess.run(
        [str(COMMANDS / words[0]), *words[1:]],
        env=environ_with(**values),
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )


@contextmanager
def started(command: list[str], folder: Path, **values: str) -> Iterator[None]:
    """A node, which `folder` is the working directory of; stopped as the image says, in the end."""
    folder.mkdir()
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            [str(COMMANDS / command[0]), *command[1:]],
            cwd=folder,
            env=environ_with(**values),
            stdout=said,
            stderr=said,
        )
    try:
        yield
        process.send_signal(signal.Signals[IMAGE.the("STOPSIGNAL").text])
        code = process.wait(HANG_S)
    finally:
        process.kill()
    assert code == 0, (folder / "said").read_text()


def await_health(server: str, **access: str) -> None:
    """Ask as the container runtime does, until the node is well."""
    command = IMAGE.health_check()
    codes = set()
    for _ in range(TRIES_MAX):
        done = run(*command, HOURWHEEL_SERVER=server, **access)
        if done.returncode == 0:
            return
        codes.add(done.returncode)
    raise AssertionError(f"it is never well: {codes}")


def test_command_and_health_check_of_the_image_exist(tmp_path: Path) -> None:
    entry, (option, file) = IMAGE.the("ENTRYPOINT").words, IMAGE.the("CMD").words
    (place,) = [one.text for one in IMAGE.all("COPY") if one.text.endswith(file)]
    given = str(tree.ROOT / place.split()[0])
    server = free_address()
    assert run(*IMAGE.health_check(), HOURWHEEL_SERVER=server).returncode == 69  # UNAVAILABLE
    values = {
        "HOURWHEEL_NODE__DATA_DIRECTORY": str(tmp_path / "volume"),
        "HOURWHEEL_NODE__LISTEN": server,
        "HOURWHEEL_NODE__METRICS_LISTEN": free_address(),
        "HOURWHEEL_CONSOLE__LISTEN": "127.0.0.1:0",  # containers have a loopback each
    }
    with started([*entry, option, given], tmp_path / "node", **values):
        await_health(server)
    assert [path.name for path in (tmp_path / "node").iterdir()] == ["said"]  # only the volume


def test_nodes_of_the_compose_file_become_a_cluster(tmp_path: Path) -> None:
    if "openssl" in toolchains.packaging_missing():
        assert "openssl" not in toolchains.packaging_required()
        return
    services = yaml.safe_load((PACKAGING / "compose.yaml").read_text())["services"]
    maker = services["certificates"]
    certificates = tmp_path / "certificates"
    certificates.mkdir()
    shell, script = maker["entrypoint"]
    target, *nodes = maker["command"]
    command = (shell, str(PACKAGING / "compose" / script.removeprefix("/")), certificates, *nodes)
    for _ in range(2):  # the second time nothing is to be done
        subprocess.run(command, check=True, capture_output=True, timeout=HANG_S)
    assert not (certificates / "authority.key").exists()

    addresses = {node: [free_address() for _ in range(3)] for node in nodes}
    listed = " ".join(f"{node}={','.join(three)}" for node, three in addresses.items())
    with ExitStack() as stack:
        for node, (api, data, control) in addresses.items():
            given = {
                key: value.replace(target, str(certificates))
                for key, value in services[node]["environment"].items()
            }
            values = {
                **given,
                "HOURWHEEL_NODE__DATA_DIRECTORY": str(tmp_path / f"volume-{node}"),
                "HOURWHEEL_NODE__LISTEN": api,
                "HOURWHEEL_NODE__METRICS_LISTEN": free_address(),
                "HOURWHEEL_CONSOLE__LISTEN": "127.0.0.1:0",  # containers have a loopback each
                "HOURWHEEL_CLUSTER__NODES": listed,
                "HOURWHEEL_CLUSTER__DATA_LISTEN": data,
                "HOURWHEEL_CLUSTER__CONTROL_LISTEN": control,
                "HOURWHEEL_CLUSTER__TLS_AUTHORITY_FILE": str(certificates / "authority.pem"),
            }
            command = [*IMAGE.the("ENTRYPOINT").words, "--config"]
            file = str(PACKAGING / "compose" / "cluster.toml")
            stack.enter_context(started([*command, file], tmp_path / node, **values))
        for api, _, _ in addresses.values():
            await_health(api)
        await_in_sync(",".join(three[0] for three in addresses.values()), set(nodes))


def test_nodes_of_the_secure_compose_file_are_well_and_let_in_who_is_known(tmp_path: Path) -> None:
    plain, secure = (
        yaml.safe_load((PACKAGING / f"{name}.yaml").read_text())["services"]
        for name in ("compose", "compose.secure")
    )
    maker = secure["certificates"]
    here = {"/etc/hourwheel/tls": str(tmp_path / "tls"), "/var/lib/hourwheel": str(tmp_path / "p")}
    words = [here.get(word, word) for word in (*maker["entrypoint"], *maker["command"])]
    assert run(*words).returncode == 0
    nodes = maker["command"][-3:]
    addresses = {node: [free_address() for _ in range(4)] for node in nodes}
    listed = " ".join(f"{node}={','.join(four[:3])}" for node, four in addresses.items())
    known: dict[str, str] = {}
    with ExitStack() as stack:
        for node, (api, data, control, metrics) in addresses.items():
            environ = plain[node]["environment"] | secure[node]["environment"]
            known = {
                key: value.replace("/etc/hourwheel/tls", here["/etc/hourwheel/tls"])
                for key, value in environ.items()
            }
            values = {
                **known,
                "HOURWHEEL_NODE__DATA_DIRECTORY": str(tmp_path / f"volume-{node}"),
                "HOURWHEEL_NODE__LISTEN": api,
                "HOURWHEEL_NODE__METRICS_LISTEN": metrics,
                "HOURWHEEL_CONSOLE__LISTEN": "127.0.0.1:0",
                "HOURWHEEL_CLUSTER__NODES": listed,
                "HOURWHEEL_CLUSTER__DATA_LISTEN": data,
                "HOURWHEEL_CLUSTER__CONTROL_LISTEN": control,
                "HOURWHEEL_CLUSTER__TLS_AUTHORITY_FILE": str(tmp_path / "tls" / "authority.pem"),
            }
            command = [*IMAGE.the("ENTRYPOINT").words, "--config"]
            file = str(PACKAGING / "compose" / "cluster.toml")
            stack.enter_context(started([*command, file], tmp_path / node, **values))
        access = {name: known[name] for name in ("HOURWHEEL_TLS_CA", "HOURWHEEL_LOGIN_FILE")}
        for api, *_ in addresses.values():
            await_health(api, **access)
        context = ssl.create_default_context(cafile=tmp_path / "p" / "authority.pem")
        for _, _, _, metrics in addresses.values():
            with urllib.request.urlopen(f"https://{metrics}/metrics", context=context) as answer:
                assert b"hourwheel_is_master" in answer.read()
        server = {"HOURWHEEL_SERVER": addresses[nodes[0]][0]}
        asked = ("hourwheel", "topics", "create", "t")
        assert run(*asked, **server, **access).returncode != 0  # who looks at health may do no more
        access["HOURWHEEL_LOGIN_FILE"] = str(tmp_path / "tls" / "admin.login")
        made = run(*asked, **server, **access)
        assert made.returncode == 0, made.stderr


def await_in_sync(servers: str, nodes: set[str]) -> None:
    """Until the master says that all nodes have what it has."""
    found: list[str] = []
    for _ in range(TRIES_MAX):
        done = run("hourwheel", "status", "--json", "--server", servers)
        if done.returncode == 0:
            (shard,) = json.loads(done.stdout)["shards"]
            found = shard["in_sync"]
            if set(found) == nodes:
                return
    raise AssertionError(f"in sync are only {found}")


def test_unit_is_one_that_systemd_takes_and_the_node_takes_its_command(tmp_path: Path) -> None:
    unit = (PACKAGING / "systemd" / "hourwheel.service").read_text()
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read_string(unit)
    program, *words = shlex.split(parser["Service"]["ExecStart"])
    (configuration,) = [word for word in words if word.endswith(".toml")]
    checked = ("node", "config", "--check", str(PACKAGING / "hourwheel.toml"))
    assert words == ["node", "--config", configuration]
    assert run("hourwheel", *checked).returncode == 0
    if "systemd" in toolchains.packaging_missing():
        assert "systemd" not in toolchains.packaging_required()
        return
    here = tmp_path / "hourwheel.service"  # with a program that is on this machine
    here.write_text(unit.replace(program, str(COMMANDS / "hourwheel")))
    for verb in (("verify",), ("security", "--offline=true", f"--threshold={EXPOSURE_MAX}")):
        done = subprocess.run(
            ["systemd-analyze", *verb, str(here)],
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if verb == ("verify",):
            assert "hourwheel.service" not in done.stderr  # nor has it anything to warn of
