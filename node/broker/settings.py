"""From the one configuration to the small ones of the rooms below, and to the engine's."""

from dataclasses import dataclass, field

from node.broker.group_commit import Durability
from node.broker.transactions.defaults import TransactionDefaults
from node.catalog.changes import DefaultsConfig
from node.config.model import NodeConfig
from node.repair.damage_control import Pace
from node.shard.dispatcher import DispatchConfig
from node.shard.job_planner import RetentionConfig
from node.shard.recovery import ShardConfig
from storage.log.commit_log import LogConfig
from timewheel.wheel import WheelConfig

_DAY_MS = 86_400_000
_HOURS_A_DAY = 24


@dataclass(frozen=True)
class EngineConfig:
    """Settings of the engine."""

    horizon_ms: int = 1_100 * 86_400_000
    durability: Durability = field(default_factory=Durability)
    """Of acknowledgements: after fdatasync, or after the write."""
    answer_bytes: int = 128 << 20
    """Of messages that were handed out and not read yet."""
    defaults: DefaultsConfig = field(default_factory=DefaultsConfig)
    transactions: TransactionDefaults = field(default_factory=TransactionDefaults)
    damage_pace: Pace = field(default_factory=Pace)
    """How often damaged bytes are looked for again."""


def shard_config(config: NodeConfig) -> ShardConfig:
    """Settings of the parts of a shard."""
    log, wheel, dispatch = config.log, config.wheel, config.dispatch
    return ShardConfig(
        log=LogConfig(
            segment_bytes=log.segment_bytes, index_interval_bytes=log.index_interval_bytes
        ),
        wheel=WheelConfig(
            near_bytes_max=wheel.near_bytes,
            near_ahead_ms=wheel.near_ahead_ms,
            load_units=wheel.load_units,
            memtable_units_max=wheel.memtable_units,
            memtable_span_bytes_max=wheel.memtable_span_bytes,
            hour_level_days=wheel.hour_level_hours // _HOURS_A_DAY,
            merge_run_count=wheel.merge_run_count,
            job_units_per_slice=wheel.job_units_per_slice,
        ),
        dispatch=DispatchConfig(
            units_max=dispatch.units_max,
            lead_ms_min=dispatch.lead_ms_min,
            lead_ms_max=dispatch.lead_ms_max,
            interval_ms=dispatch.interval_ms,
        ),
        retention=RetentionConfig(
            retention_ms=log.retention_ms,
            log_bytes_max=log.retention_bytes,
            producer_idle_ms=config.limits.producer_idle_ms,
        ),
    )


def engine_config(config: NodeConfig) -> EngineConfig:
    """Settings of the engine."""
    topics, groups = config.topics, config.groups
    return EngineConfig(
        horizon_ms=config.wheel.horizon_days * _DAY_MS,
        durability=Durability(
            is_durable=config.log.durability == "sync", flush_ms=config.log.async_flush_ms
        ),
        answer_bytes=config.limits.answer_bytes,
        transactions=TransactionDefaults(
            check_interval_ms=config.transactions.check_interval_ms,
            checks_max=config.transactions.checks_max,
            age_ms_max=config.transactions.age_ms,
        ),
        defaults=DefaultsConfig(
            topics_auto_create=topics.auto_create,
            topics_auto_create_by_receiving=topics.auto_create_by_receiving,
            topic_queue_count=topics.queue_count,
            topics_max=config.limits.topics,
            groups_auto_create=groups.auto_create,
            groups_max=config.limits.groups,
            members_max=config.limits.broadcast_members,
            members_per_broadcast_max=config.limits.members_per_broadcast,
            group_idle_ms=config.limits.group_idle_ms,
            topic_idle_ms=config.limits.topic_idle_ms,
            subscriptions_max=config.limits.subscriptions,
            attempts_max=groups.attempts_max,
            invisible_ms=groups.invisible_ms,
            retry_delay_ms=groups.retry_delay_ms,
            retry_delay_ms_max=groups.retry_delay_ms_max,
        ),
    )
