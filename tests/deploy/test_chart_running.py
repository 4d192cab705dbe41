"""What stands in a rendering, run: the configuration by nodes, probes and hooks against them.

Three processes on this machine stand for the pods. Each sees files where its container has them, in
a folder of its own, and addresses of loopback instead of names; certificates have the names that
cert-manager is asked for.
"""

import argparse
import base64
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest
import trustme

from hourwheel.cli.exit_codes import ExitCode
from node.access.user_secrets import hash_of
from spark_jobs.commands.options import add_spark_options
from tests.support.addresses import free_address
from tests.support.containerfile import Containerfile
from tests.support.helm_chart import CASES, CHART, Object, objects, only, render, render_case
from tests.tidy import tree

COMMANDS: Final = Path(sys.executable).parent
IMAGE: Final = Containerfile.read(tree.ROOT / "packaging" / "Containerfile").last_stage()
HANG_S: Final = 120.0
LOOK_S: Final = 0.05
TRIES_MAX: Final = 1_200
SMALL: Final = ("--set=config.disk.free_bytes_min=0", "--set=config.disk.reserve_bytes=0")
NO_TOKENS: Final = (
    "--set=access.tokenKeys.existingConfigMap=",
    "--set=config.authentication.token_issuer=",
    "--set=config.authentication.token_audience=",
)
QUICK: Final = ("--set=drain.lingerSeconds=0", "--set=tests.delayMs=1000")


def run(command: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a container has it, to its end."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "HOURWHEEL_"))}
    return subprocess.run(
        command,
        env={**kept, "PATH": f"{COMMANDS}{os.pathsep}{os.environ['PATH']}", **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )


@dataclass
class Pod:
    """One pod of the StatefulSet, as a process."""

    name: str
    container: Object
    files: dict[str, bytes]
    """What is mounted: path in the container -> content."""
    folder: Path
    ports: dict[int, str] = field(default_factory=dict)
    """Port of the container -> address on this machine."""
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.ports = {one["containerPort"]: free_address() for one in self.container["ports"]}

    def address_of(self, port: str) -> str:
        """Where a port of this name is on this machine."""
        (found,) = (
            self.ports[one["containerPort"]]
            for one in self.container["ports"]
            if one["name"] == port
        )
        return found

    def start(self, hosts: dict[str, str]) -> None:
        """Run what the container runs; `hosts`: what names of other pods stand for."""
        volumes = [one["mountPath"] for one in self.container["volumeMounts"]]
        for path, content in self.files.items():
            place = self.here(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            text = content.decode()
            for name, address in hosts.items():
                text = text.replace(name, address)
            for port, address in self.ports.items():
                text = text.replace(f"0.0.0.0:{port}", address)
            text = re.sub(rf'(?<=")(?:{"|".join(volumes)})', lambda it: str(self.here(it[0])), text)
            place.write_text(text)
            place.chmod(0o600 if path.endswith(".key") else 0o644)
        for volume in volumes:
            if volume not in self.files:
                self.here(volume).mkdir(parents=True, exist_ok=True)
        # A pod has a loopback of its own, and here all share one: each console any free port of it.
        environ = {"POD_NAME": self.name, "HOURWHEEL_CONSOLE__LISTEN": "127.0.0.1:0"}
        for one in self.container["env"]:
            value = one.get("value", self.name).replace("$(POD_NAME)", self.name)
            environ[one["name"]] = str(self.here(value)) if value.startswith("/") else value
        words = [
            str(self.here(word)) if word.startswith("/") else word
            for word in self.container["args"]
        ]
        program, *first = IMAGE.the("ENTRYPOINT").words
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "HOURWHEEL_"))}
        with (self.folder / "said").open("wb") as said:
            self.process = subprocess.Popen(
                [str(COMMANDS / program), *first, *words],
                cwd=self.folder,
                env={**kept, **environ},
                stdout=said,
                stderr=said,
            )

    def here(self, path: str) -> Path:
        """A path of the container on this machine."""
        return self.folder / path.removeprefix("/")

    def probe(self, kind: str) -> tuple[int, str]:
        """Ask as the kubelet does; status 0 where nobody answers."""
        asked = self.container[kind]["httpGet"]
        address = self.address_of(asked["port"])
        connection = http.client.HTTPConnection(address, timeout=HANG_S)
        if asked.get("scheme") == "HTTPS":
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = http.client.HTTPSConnection(address, timeout=HANG_S, context=context)
        try:
            connection.request("GET", asked["path"])
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except ConnectionError:
            return 0, ""
        finally:
            connection.close()

    def await_ready(self) -> None:
        """Until it has started and is ready."""
        self.await_status("readinessProbe", 200)

    def await_status(self, kind: str, status: int) -> None:
        """Until a probe tells this status. A node that ends meanwhile will not."""
        told = set()
        for _ in range(TRIES_MAX):
            told.add(found := self.probe(kind))
            if found[0] == status:
                return
            assert self.process is not None
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(LOOK_S)
                break
        raise AssertionError(f"{self.name}: {told} {(self.folder / 'said').read_text()}")

    def pre_stop(self) -> subprocess.CompletedProcess[str]:
        """Run the hook."""
        command = self.container["lifecycle"]["preStop"]["exec"]["command"]
        if command[0] == "/bin/sh":
            assert self.process is not None
            assert "kill -USR1 1 " in command[-1]  # a container's first process
            own_kill = f"kill -USR1 {self.process.pid} "
            return run([word.replace("kill -USR1 1 ", own_kill) for word in command])
        own = "127.0.0.1:7400"
        assert any(own in word for word in command)
        return run([word.replace(own, self.ports[7400]) for word in command])

    def stop(self) -> int:
        """Tell it to stop as the kubelet does; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.Signals[IMAGE.the("STOPSIGNAL").text])
        return self.process.wait(HANG_S)


def secrets_of(rendered: str) -> dict[str, dict[str, bytes]]:
    """The Secrets that cert-manager would make."""
    authorities: dict[str, trustme.CA] = {}
    found = {}
    for one in objects(rendered):
        if one["kind"] == "Certificate" and "isCA" not in one["spec"]:
            authority = authorities.setdefault(one["spec"]["issuerRef"]["name"], trustme.CA())
            issued = authority.issue_cert(*one["spec"]["dnsNames"], "127.0.0.1")
            found[one["spec"]["secretName"]] = {
                "ca.crt": authority.cert_pem.bytes(),
                "tls.crt": b"".join(pem.bytes() for pem in issued.cert_chain_pems),
                "tls.key": issued.private_key_pem.bytes(),
            }
    return found


def mounted(rendered: str, pod: str, secrets: dict[str, dict[str, bytes]]) -> dict[str, bytes]:
    """What a pod of the StatefulSet finds mounted from ConfigMaps and Secrets."""
    spec = only(rendered, "StatefulSet")["spec"]["template"]["spec"]
    volumes: dict[str, dict[str, bytes]] = {}
    for volume in spec["volumes"]:
        files = volumes[volume["name"]] = {}
        if "configMap" in volume and volume["name"] == "config":
            data = only(rendered, "ConfigMap", volume["configMap"]["name"])["data"]
            files.update({name: text.encode() for name, text in data.items()})
        for source in volume.get("projected", {}).get("sources", ()):
            secret = source["secret"]
            for item in secret["items"]:
                files[item["path"]] = secrets[secret["name"]][item["key"]]
        if "secret" in volume:
            content = secrets[volume["secret"]["secretName"]]
            items = volume["secret"].get("items") or [{"key": key, "path": key} for key in content]
            files.update({item["path"]: content[item["key"]] for item in items})
    (container,) = spec["containers"]
    found = {}
    for mount in container["volumeMounts"]:
        part = mount.get("subPath") or mount.get("subPathExpr", "")
        if part:
            name = part.replace("$(POD_NAME)", pod)
            found[mount["mountPath"]] = volumes[mount["name"]][name]
        else:
            for name, content in volumes.get(mount["name"], {}).items():
                found[f"{mount['mountPath']}/{name}"] = content
    return found


@contextmanager
def installed(
    rendered: str, folder: Path, others: dict[str, dict[str, bytes]] | None = None
) -> Iterator[list[Pod]]:
    """All pods of the StatefulSet, started at once, and stopped or killed in the end.

    `others`: Secrets beside those of cert-manager.
    """
    stateful = only(rendered, "StatefulSet")
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    secrets = {**secrets_of(rendered), **(others or {})}
    names = [
        f"{stateful['metadata']['name']}-{ordinal}"
        for ordinal in range(stateful["spec"]["replicas"])
    ]
    found = []
    for name in names:
        (folder / name).mkdir()
        found.append(Pod(name, container, mounted(rendered, name, secrets), folder / name))
    domain = f"{stateful['spec']['serviceName']}.ns.svc.cluster.local"
    hosts = {
        f"{pod.name}.{domain}:{port}": address
        for pod in found
        for port, address in pod.ports.items()
    }
    with ExitStack() as stack:
        for pod in found:
            pod.start(hosts)
            assert pod.process is not None
            stack.callback(pod.process.wait)
            stack.callback(pod.process.kill)
        yield found


def master_of(pods: list[Pod], *options: str) -> str:
    """The master, as the nodes say to who shows these options."""
    servers = ",".join(pod.ports[7400] for pod in pods)
    done = run(["hourwheel", *options, "status", "--json", "--server", servers])
    assert done.returncode == 0, done.stderr
    (shard,) = json.loads(done.stdout)["shards"]
    return str(shard["master"])


def run_test(rendered: str, server: str, folder: Path = Path("/")) -> str:
    """What `helm test` runs, and what it says; `folder`: where its files are on this machine."""
    (container,) = only(rendered, "Pod")["spec"]["containers"]
    environ = {one["name"]: one["value"] for one in container["env"]}
    for name in {"HOURWHEEL_TLS_CA", "HOURWHEEL_LOGIN_FILE"} & set(environ):
        environ[name] = str(folder / environ[name].removeprefix("/"))
    environ["HOURWHEEL_SERVER"] = server
    done = run([*container["command"], *container["args"]], **environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_three_pods_become_a_cluster_and_are_drained_one_by_one(tmp_path: Path) -> None:
    rendered = render(*SMALL, *QUICK)
    with installed(rendered, tmp_path) as pods:
        for pod in pods:
            pod.await_ready()
            assert pod.probe("startupProbe")[0] == pod.probe("livenessProbe")[0] == 200
        assert "came when it was due" in run_test(
            rendered, ",".join(pod.ports[7400] for pod in pods)
        )

        master = master_of(pods)
        followers = [pod for pod in pods if pod.name != master]
        (leading,) = (pod for pod in pods if pod.name == master)
        hook = followers[0].pre_stop()
        assert hook.returncode == 0, hook.stderr
        assert master_of(pods) == master
        hook = leading.pre_stop()
        assert hook.returncode == 0, hook.stderr
        assert master_of(pods) != master
        assert leading.stop() == 0
        for pod in followers:
            pod.await_ready()

        last = followers.pop()
        assert followers[0].stop() == 0
        last.await_status("readinessProbe", 503)  # it is the only one
        assert last.probe("livenessProbe") == (200, "yes\n")
        assert last.stop() == 0


def put_files(rendered: str, folder: Path, secrets: dict[str, dict[str, bytes]]) -> None:
    """What the pod of `helm test` has mounted from Secrets, below `folder`."""
    spec = only(rendered, "Pod")["spec"]
    (container,) = spec["containers"]
    places = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    for volume in spec["volumes"]:
        for item in volume.get("secret", {}).get("items", ()):
            place = folder / places[volume["name"]].removeprefix("/") / item["path"]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(secrets[volume["secret"]["secretName"]][item["key"]])


def scrape(rendered: str, pod: Pod, login: dict[str, bytes], authority: bytes) -> str:
    """Ask for metrics as the ServiceMonitor has it."""
    (endpoint,) = only(rendered, "ServiceMonitor")["spec"]["endpoints"]
    name, key = endpoint["basicAuth"]["username"], endpoint["basicAuth"]["password"]
    told = b":".join([login[name["key"]], login[key["key"]]])
    context = ssl.create_default_context(cadata=authority.decode())
    host, port = pod.address_of(endpoint["port"]).split(":")
    with (
        socket.create_connection((host, int(port)), timeout=HANG_S) as plain,
        context.wrap_socket(
            plain, server_hostname=endpoint["tlsConfig"]["serverName"]
        ) as connection,
    ):
        head = f"GET {endpoint['path']} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        head += f"Authorization: Basic {base64.b64encode(told).decode()}\r\n\r\n"
        connection.sendall(head.encode())
        return b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()


def test_secure_pods_answer_probes_are_drained_and_let_in_who_may(tmp_path: Path) -> None:
    rendered = render(f"--values={CHART / 'ci' / 'secure-values.yaml'}", *SMALL, *QUICK, *NO_TOKENS)
    secret, watching = "of the administrator", "of prometheus"
    users = {
        "users": f"admin:{hash_of(secret)}\nprometheus:{hash_of(watching)}\n".encode(),
        "admin.login": f"admin:{secret}\n".encode(),
    }
    login = {"username": b"prometheus", "password": watching.encode()}
    secrets = {**secrets_of(rendered), "hourwheel-users": users}
    authority = secrets["r-hourwheel-clients-tls"]["ca.crt"]
    client = tmp_path / "client"
    put_files(rendered, client, secrets)
    known = (
        *("--tls-ca", str(client / "etc/hourwheel/client-tls/ca.crt")),
        *("--login-file", str(client / "etc/hourwheel/login/admin.login")),
    )
    with installed(rendered, tmp_path, secrets) as pods:
        for pod in pods:
            pod.await_ready()
            assert pod.probe("startupProbe")[0] == pod.probe("livenessProbe")[0] == 200
            assert not list(pod.folder.rglob("admin.login"))
        servers = ",".join(pod.ports[7400] for pod in pods)
        assert "came when it was due" in run_test(rendered, servers, client)
        for options in ((), known[:2]):  # in the clear; nobody in particular
            assert run(["hourwheel", *options, "status", "--server", servers]).returncode != 0

        assert "403" in scrape(rendered, pods[0], login, authority).split("\r\n")[0]
        granted = run(
            ["hourwheel", *known, "access", "grant", "prometheus", "look", "--cluster"],
            HOURWHEEL_SERVER=servers,
        )
        assert granted.returncode == 0, granted.stderr
        for _ in range(TRIES_MAX):
            if "hourwheel_is_master" in (told := scrape(rendered, pods[0], login, authority)):
                break
        else:
            raise AssertionError(told)

        master = master_of(pods, *known)
        (leading,) = (pod for pod in pods if pod.name == master)
        hook = leading.pre_stop()
        assert hook.returncode == 0, hook.stderr
        for _ in range(TRIES_MAX):
            if master_of(pods, *known) != master:
                break
        else:
            raise AssertionError("nobody took over")
        leading.await_ready()  # it serves on
        assert leading.stop() == 0


def test_one_pod_is_ready_and_does_what_the_test_of_the_chart_asks(tmp_path: Path) -> None:
    rendered = render("--set=replicas=1", *SMALL, *QUICK)
    with installed(rendered, tmp_path) as (pod,):
        pod.await_ready()
        assert "came when it was due" in run_test(rendered, pod.ports[7400])
        hook = pod.pre_stop()
        assert (hook.returncode, hook.stdout) == (0, f"the master is node {pod.name}\n")
        assert pod.stop() == 0
        assert {path.name for path in pod.here("/var/lib/hourwheel").iterdir()} == {"data"}
    assert pod.pre_stop().returncode == ExitCode.UNAVAILABLE


def test_test_of_the_chart_fails_when_nobody_answers() -> None:
    with pytest.raises(AssertionError):
        run_test(render(*QUICK), free_address())


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("jobs")])
def test_jobs_are_told_what_their_commands_understand(case: str) -> None:
    found = [one for one in objects(render_case(case)) if one["kind"] == "CronJob"]
    assert found
    for one in found:
        (container,) = one["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        name, *words = container["args"]
        command = import_module(f"spark_jobs.commands.{name}")
        parser = argparse.ArgumentParser(exit_on_error=False)
        command.add_options(parser)
        add_spark_options(parser)
        parsed = vars(parser.parse_args(words))
        told = json.dumps({key: str(value) for key, value in parsed.items()})
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        for path in re.findall(r"(?<![\w:/])/\w+", told):
            assert path in mounts, f"{name}: {path} is not mounted"
