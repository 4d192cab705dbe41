"""What the chart refuses because of what is installed, before a stand-in for an API server.

It answers the two requests of Helm's `lookup`, and nothing else.
"""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.helm_chart import APIS, CHART, NAMESPACE, RELEASE, helm

RESOURCES: Final = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": "apps/v1",
    "resources": [
        {"name": "statefulsets", "namespaced": True, "kind": "StatefulSet", "verbs": ["get"]}
    ],
}


class Cluster(ThreadingHTTPServer):
    """Has one StatefulSet, or none."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replicas: int | None = None
        self.asked: list[str] = []

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        self.asked.append(path)
        if path == "/apis/apps/v1":
            return 200, RESOURCES
        own = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{RELEASE}-hourwheel"
        if path == own and self.replicas is not None:
            metadata = {"name": f"{RELEASE}-hourwheel", "namespace": NAMESPACE}
            return 200, {
                "kind": "StatefulSet",
                "apiVersion": "apps/v1",
                "metadata": metadata,
                "spec": {"replicas": self.replicas},
            }
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}
        return 404, {**status, "reason": "NotFound", "message": "there is none"}


class _Handler(BaseHTTPRequestHandler):
    server: Cluster

    def do_GET(self) -> None:
        status, found = self.server.answer(self.path.split("?")[0])
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def upgrade(cluster: Cluster, folder: Path, replicas: int) -> tuple[int, str]:
    """Exit code of Helm, and what it complains of."""
    file = folder / "kubeconfig"
    server = f"http://127.0.0.1:{cluster.server_port}"
    context = {"cluster": "c", "user": "u", "namespace": NAMESPACE}
    file.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": context}],
            }
        )
    )
    done = helm(
        *("template", RELEASE, str(CHART), f"--namespace={NAMESPACE}", "--dry-run=server"),
        *(f"--set=replicas={replicas}", *(f"--api-versions={api}" for api in APIS)),
        KUBECONFIG=str(file),
        HOME=str(folder),
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("installed", [None, 1, 3, 5])
@pytest.mark.parametrize("wanted", [1, 3, 5])
def test_number_of_nodes_stays_what_was_installed(
    cluster: Cluster, tmp_path: Path, installed: int | None, wanted: int
) -> None:
    cluster.replicas = installed
    code, complaint = upgrade(cluster, tmp_path, wanted)
    assert any("statefulsets" in path for path in cluster.asked), "nobody looked"
    if installed in {None, wanted}:
        assert code == 0, complaint
    else:
        assert code != 0
        told = f"replicas is {wanted}, and {RELEASE}-hourwheel has {installed} nodes"
        assert told in complaint
        assert "UPGRADING.md" in complaint
