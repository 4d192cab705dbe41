"""Every key that a lower room knows reaches it."""

from dataclasses import fields

from node.broker.settings import engine_config, shard_config
from node.config.model import NodeConfig

OTHER = {
    "log": {
        "segment_bytes": 65_536,
        "index_interval_bytes": 8_192,
        "durability": "async",
        "async_flush_ms": 9,
        "retention_ms": 60_001,
        "retention_bytes": 131_072,
    },
    "wheel": {
        "horizon_days": 800,
        "memtable_units": 2_048,
        "memtable_span_bytes": 65_537,
        "near_bytes": 5 << 20,
        "near_ahead_ms": 2_000,
        "load_units": 128,
        "hour_level_hours": 72,
        "merge_run_count": 3,
        "job_units_per_slice": 2_048,
    },
    "dispatch": {"units_max": 7, "lead_ms_min": 4, "lead_ms_max": 8, "interval_ms": 5},
    "topics": {"auto_create": False, "auto_create_by_receiving": True, "queue_count": 4},
    "groups": {
        "auto_create": False,
        "attempts_max": 3,
        "invisible_ms": 400,
        "retry_delay_ms": 5,
        "retry_delay_ms_max": 6,
    },
    "limits": {
        "topics": 11,
        "groups": 12,
        "subscriptions": 13,
        "producer_idle_ms": 600_002,
        "group_idle_ms": 60_003,
        "topic_idle_ms": 60_004,
        "broadcast_members": 14,
        "members_per_broadcast": 15,
    },
}

NOT_CONFIGURED = {"RetentionConfig": ["sequence_step"]}
"""What only tests set otherwise."""


def test_defaults_of_the_rooms_are_those_of_the_configuration() -> None:
    config = NodeConfig.of()
    shard, engine = shard_config(config), engine_config(config)
    assert shard == type(shard)()
    assert engine == type(engine)()


def test_every_value_differs_when_every_key_differs() -> None:
    config = NodeConfig.of(OTHER)
    shard, engine = shard_config(config), engine_config(config)
    for made in (shard.log, shard.wheel, shard.dispatch, shard.retention, engine.defaults):
        plain = type(made)()
        same = [
            field.name
            for field in fields(made)
            if getattr(made, field.name) == getattr(plain, field.name)
        ]
        assert same == NOT_CONFIGURED.get(type(made).__name__, []), type(made).__name__
    assert engine.horizon_ms == 800 * 86_400_000
    assert (engine.durability.is_durable, engine.durability.flush_ms) == (False, 9)
    assert shard.wheel.hour_level_days == 3
