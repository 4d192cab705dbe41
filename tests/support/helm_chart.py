"""The chart as Helm renders it, and what is found in a rendering."""

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.toolchains import HELM
from tests.tidy import tree

CHART: Final = tree.ROOT / "helm" / "hourwheel"
CASES: Final = tuple(sorted(path.name for path in (CHART / "ci").iterdir()))
RELEASE: Final = "r"
NAMESPACE: Final = "ns"
APIS: Final = ("cert-manager.io/v1", "monitoring.coreos.com/v1")
"""What a cluster may have beside Kubernetes itself."""

Object = dict[str, Any]


class Refused(Exception):
    """Helm did not render it; the message is Helm's."""


class _Strict(yaml.SafeLoader):
    """Refuses keys that stand twice, as Kubernetes does and PyYAML does not."""


def _mapping(loader: _Strict, node: yaml.MappingNode) -> Object:
    found: Object = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node)
        if key in found:
            raise yaml.constructor.ConstructorError(None, None, f"{key} twice", key_node.start_mark)
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def helm(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run Helm, which asks no cluster where `environ` names none."""
    return subprocess.run(
        [str(HELM), *words],
        env={"HOME": "/nonexistent", "PATH": "/nonexistent", **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@cache
def render(*words: str, chart: Path = CHART, apis: tuple[str, ...] = APIS) -> str:
    """What Helm makes of the chart with these options. Raises Refused."""
    options = [f"--api-versions={api}" for api in apis]
    done = helm("template", RELEASE, str(chart), f"--namespace={NAMESPACE}", *options, *words)
    if done.returncode:
        raise Refused(done.stderr)
    return done.stdout


@cache
def render_case(case: str) -> str:
    """What comes of one file of ci/."""
    return render(f"--values={CHART / 'ci' / case}")


@cache
def objects(rendered: str) -> tuple[Object, ...]:
    """The objects in it, not to be changed. Raises YAMLError where a key stands twice."""
    return tuple(one for one in yaml.load_all(rendered, _Strict) if one)


def only(rendered: str, kind: str, name: str = "") -> Object:
    """The one object of a kind, or of that and a name that ends so."""
    (found,) = (
        one
        for one in objects(rendered)
        if one["kind"] == kind and one["metadata"]["name"].endswith(name)
    )
    return found


def pods(rendered: str) -> Iterator[tuple[str, Object]]:
    """Kind and specification of all pods that it may come to."""
    for one in objects(rendered):
        if one["kind"] == "Pod":
            yield one["kind"], one["spec"]
        elif one["kind"] == "StatefulSet":
            yield one["kind"], one["spec"]["template"]["spec"]
        elif one["kind"] == "CronJob":
            yield one["kind"], one["spec"]["jobTemplate"]["spec"]["template"]["spec"]
