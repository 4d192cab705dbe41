"""The configuration's keys, defaults and bounds."""

from typing import Any

import pytest
from pydantic import ValidationError

from hourwheel import limits
from hourwheel.errors import ConfigError
from node.config.model import NodeConfig


def test_defaults_are_valid_and_as_documented() -> None:
    config = NodeConfig.of()
    assert config.node.listen == "127.0.0.1:7400"
    assert config.node.metrics_listen == "127.0.0.1:7401"
    assert config.log.durability == "sync"
    assert config.log.retention_ms == 72 * 3_600_000
    assert config.log.retention_bytes == 0
    assert config.wheel.horizon_days >= 731
    assert config.wheel.hour_level_hours == 48
    assert config.dispatch.units_max == 4_096
    assert (config.groups.attempts_max, config.groups.invisible_ms) == (16, 30_000)
    assert config.topics.auto_create
    assert config.groups.auto_create


def test_configuration_is_frozen() -> None:
    config = NodeConfig.of()
    with pytest.raises(ValidationError):
        config.node = config.node
    with pytest.raises(ValidationError):
        config.log.async_flush_ms = 5


@pytest.mark.parametrize(
    ("values", "key", "value"),
    [
        ({"lgo": {}}, "lgo", "{}"),
        ({"log": {"segmnt_bytes": 5}}, "log.segmnt_bytes", "5"),
        ({"log": {"segment_bytes": 5}}, "log.segment_bytes", "5"),
        ({"log": {"segment_bytes": "big"}}, "log.segment_bytes", "big"),
        ({"log": {"durability": "maybe"}}, "log.durability", "maybe"),
        ({"wheel": {"horizon_days": 730}}, "wheel.horizon_days", "730"),
        ({"topics": {"queue_count": 257}}, "topics.queue_count", "257"),
        ({"telemetry": {"log_level": "loud"}}, "telemetry.log_level", "loud"),
        ({"log": 7}, "log", "7"),
    ],
)
def test_configuration_is_refused_naming_key_and_value_when_one_is_wrong(
    values: dict[str, Any], key: str, value: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        NodeConfig.of(values)
    assert caught.value.params == {"key": key, "value": value}
    assert key in caught.value.message


def test_lease_is_longer_than_two_heartbeats() -> None:
    nodes = "node-1=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    cluster = {"nodes": nodes, "min_in_sync": 1, "sync_interval_ms": 201}
    with pytest.raises(ConfigError, match="less than two") as caught:
        NodeConfig.of({"node": {"id": "node-1"}, "cluster": cluster})
    assert caught.value.params["key"] == "cluster.lease_ms"
    NodeConfig.of({"node": {"id": "node-1"}, "cluster": {**cluster, "lease_ms": 402}})


@pytest.mark.parametrize(
    ("key", "hard"),
    [
        ("message_body_bytes", limits.MESSAGE_BODY_BYTES_MAX),
        ("batch_bytes", limits.BATCH_BYTES_MAX),
        ("batch_messages", limits.BATCH_MESSAGE_COUNT_MAX),
    ],
)
def test_limits_are_never_laxer_than_those_of_the_formats(key: str, hard: int) -> None:
    assert getattr(NodeConfig.of({"limits": {key: hard}}).limits, key) == hard
    with pytest.raises(ConfigError):
        NodeConfig.of({"limits": {key: hard + 1}})


def test_every_key_is_described_and_has_its_unit_in_its_name() -> None:
    units = {
        "ms": "_ms",
        "bytes": "_bytes",
        "days": "_days",
        "hours": "_hours",
    }
    for section, field in NodeConfig.model_fields.items():
        for name, key in type(field.default).model_fields.items():
            extra: Any = key.json_schema_extra
            assert key.description, f"{section}.{name}"
            if extra["unit"] in units:
                stem = name.removesuffix("_max").removesuffix("_min").removesuffix("_in_flight")
                assert stem.endswith((units[extra["unit"]], extra["unit"])), f"{section}.{name}"
