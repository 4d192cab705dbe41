"""What a node says of its ports that other machines reach."""

from typing import Any

import pytest

from node.config.model import NodeConfig
from node.process.exposure import warn_of_others

BEYOND, HERE = "0.0.0.0:1", "127.0.0.1:1"
ON = {"is_on": True, "administrators": "root"}
TLS = {"certificate_file": "a", "key_file": "b"}


def said_of(caplog: pytest.LogCaptureFixture, **sections: Any) -> tuple[bool, set[str]]:
    """Whether anyone may do everything, and each warning with the key that it is about."""
    caplog.set_level("WARNING")
    anyone_may_call = warn_of_others(NodeConfig.of(sections))
    said = [one.msg for one in caplog.records if isinstance(one.msg, dict)]
    return anyone_may_call, {" ".join([one["event"], one.get("key", "")]).strip() for one in said}


@pytest.mark.parametrize("key", ["node.metrics_listen", "console.listen"])
def test_port_of_pages_is_named_where_the_api_listens_on_loopback(
    caplog: pytest.LogCaptureFixture, key: str
) -> None:
    section, name = key.split(".")
    sections = {"node": {"listen": HERE}, "console": {"listen": ""}}
    sections[section] = {**sections[section], name: "0.0.0.0:2"}
    assert said_of(caplog, **sections) == (False, {f"anyone_may_look {key}"})


def test_each_port_is_named(caplog: pytest.LogCaptureFixture) -> None:
    node = {"listen": BEYOND, "metrics_listen": "0.0.0.0:2"}
    assert said_of(caplog, node=node, console={"listen": "0.0.0.0:3"}) == (
        True,
        {
            "clients_in_the_clear",
            "anyone_may_call",
            "anyone_may_look node.metrics_listen",
            "anyone_may_look console.listen",
        },
    )


@pytest.mark.parametrize(
    "sections",
    [
        {"node": {"listen": HERE, "metrics_listen": ""}, "console": {"listen": ""}},
        {"node": {"listen": HERE, "metrics_listen": "127.0.0.1:2"}},
        {"node": {"listen": BEYOND, "metrics_listen": "0.0.0.0:2"}, "access": ON, "tls": TLS},
        {
            "node": {"listen": HERE, "metrics_listen": "0.0.0.0:2"},
            "access": {**ON, "metrics": False},
        },
    ],
)
def test_nothing_is_said_of_ports_on_loopback_or_with_logins(
    caplog: pytest.LogCaptureFixture, sections: dict[str, Any]
) -> None:
    assert said_of(caplog, **sections) == (False, set())
