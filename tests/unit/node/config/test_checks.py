"""What the keys must hold together."""

from typing import Any

import pytest

from hourwheel.errors import ConfigError
from node.config.checks import split_address
from node.config.model import NodeConfig

GIB = 1 << 30


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"node": {"id": ""}}, "node.id"),
        ({"node": {"id": "-a"}}, "node.id"),
        ({"node": {"id": "a b"}}, "node.id"),
        ({"node": {"id": "x" * 64}}, "node.id"),
        ({"node": {"listen": "7400"}}, "node.listen"),
        ({"node": {"listen": "localhost:70000"}}, "node.listen"),
        ({"node": {"listen": ""}}, "node.listen"),
        ({"node": {"advertised": "broker"}}, "node.advertised"),
        ({"node": {"advertised": "broker:0"}}, "node.advertised"),
        ({"node": {"metrics_listen": "http://a:1"}}, "node.metrics_listen"),
        ({"node": {"metrics_listen": "127.0.0.1:7400"}}, "node.metrics_listen"),
        ({"console": {"listen": "7402"}}, "console.listen"),
        ({"console": {"listen": "127.0.0.1:7400"}}, "console.listen"),
        ({"console": {"listen": "127.0.0.1:7401"}}, "console.listen"),
        ({"console": {"hosts": "a.example http://b.example"}}, "console.hosts"),
        ({"dispatch": {"lead_ms_min": 21}}, "dispatch.lead_ms_min"),
        ({"groups": {"retry_delay_ms": 600_001}}, "groups.retry_delay_ms"),
        ({"limits": {"stream_bytes_in_flight": 65_536}}, "limits.batch_bytes"),
        ({"limits": {"bytes_in_flight": 1 << 23}}, "limits.stream_bytes_in_flight"),
        ({"log": {"retention_bytes": GIB}}, "log.retention_bytes"),
        ({"wheel": {"load_units": 1 << 20}}, "wheel.load_units"),
        ({"wheel": {"hour_level_hours": 47}}, "wheel.hour_level_hours"),
    ],
)
def test_configuration_is_refused_when_keys_do_not_fit_together(
    values: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        NodeConfig.of(values)
    assert caught.value.params["key"] == key
    assert caught.value.message.startswith(f"{key} = ")


def test_configuration_is_checked_however_it_is_made() -> None:
    with pytest.raises(ConfigError):
        NodeConfig.model_validate({"node": {"id": "a b"}})


@pytest.mark.parametrize(
    "values",
    [
        {"node": {"listen": "127.0.0.1:0", "metrics_listen": "127.0.0.1:0"}},
        {"node": {"listen": "[::1]:7400", "metrics_listen": ""}},
        {"node": {"listen": "0.0.0.0:7400", "advertised": "broker-1.example:7400"}},
        {"console": {"listen": "", "hosts": "a.example b"}},
        {"log": {"retention_bytes": 2 * GIB}},
        {"dispatch": {"lead_ms_min": 20}},
    ],
)
def test_configuration_passes_when_keys_fit_together(values: dict[str, Any]) -> None:
    NodeConfig.of(values)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("a.b-c:1", "a.b-c", 1), ("[::1]:65535", "::1", 65_535), ("127.0.0.1:0", "127.0.0.1", 0)],
)
def test_address_is_split_into_host_and_port(address: str, host: str, port: int) -> None:
    assert split_address("key", address) == (host, port)
