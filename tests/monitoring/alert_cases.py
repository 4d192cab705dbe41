"""For each alert: what Prometheus sees when it must fire, and when it must not.

Series are written as promtool wants them, a value a minute: "0x10 1x10" is eleven zeros and eleven
ones, "0+60x30" grows by 60 each minute. `{...}` is put into each: which cluster and node it is of.
"""

from typing import Final, NamedTuple

Series = dict[str, str]

ALWAYS: Final = "1x400"
NEVER: Final = "0x400"
_LATE = 'hourwheel_delivery_lateness_seconds_bucket{le="0.1"}'
_ALL = "hourwheel_delivery_lateness_seconds_count{}"
_FSYNC = "hourwheel_log_fsync_duration_seconds_bucket"
_LOOP = "hourwheel_loop_delay_seconds_bucket"
_LAG = 'hourwheel_consumer_lag_messages{group="g",topic="t"}'
_LEASED = 'hourwheel_consumer_leased_messages{group="g",topic="t"}'
_CERTIFICATE = 'hourwheel_tls_certificate_not_after_timestamp_seconds{certificate="node"}'
_STARTED = "hourwheel_start_timestamp_seconds{}"


_LES = ("0.001", "+Inf")


class Case(NamedTuple):
    """One alert."""

    fires: Series
    quiet: Series
    minutes: int = 30
    """When it is looked at."""
    resolved: Series | None = None
    """What it has fired on, and what is over by then."""


def _quantile(name: str, slow: str) -> Series:
    """A histogram of which one observation out of ten lies above its first bound."""
    return {f'{name}{{le="{slow}"}}': "0+90x400", f'{name}{{le="+Inf"}}': "0+100x400"}


CASES: Final[dict[str, Case]] = {
    "HourwheelEarlyDelivery": Case(
        fires={"hourwheel_early_deliveries_total{}": "0x20 1x20"},
        quiet={"hourwheel_early_deliveries_total{}": NEVER},
        resolved={"hourwheel_early_deliveries_total{}": "0x5 1x40"},
    ),
    "HourwheelLatenessBudgetBurnsFast": Case(
        fires={_LATE: "0+980x400", _ALL: "0+1000x400"},
        quiet={_LATE: "0+999x400", _ALL: "0+1000x400"},
        minutes=90,
        resolved={_LATE: "0+980x70 69600+1000x300", _ALL: "0+1000x400"},
    ),
    "HourwheelLatenessBudgetBurnsSlowly": Case(
        fires={_LATE: "0+990x400", _ALL: "0+1000x400"},
        quiet={_LATE: "0+996x400", _ALL: "0+1000x400"},
        minutes=390,
    ),
    "HourwheelOverdueBacklog": Case(
        fires={'hourwheel_wheel_dequeue_lag_seconds{shard="0"}': "60x40"},
        quiet={'hourwheel_wheel_dequeue_lag_seconds{shard="0"}': "0x10 60x0 0x30"},
    ),
    "HourwheelNotCommitting": Case(
        fires={'hourwheel_wheel_enqueue_lag_seconds{shard="0"}': "9x40"},
        quiet={'hourwheel_wheel_enqueue_lag_seconds{shard="0"}': "1x40"},
    ),
    "HourwheelConsumerStalled": Case(
        fires={_LAG: "7x400", _LEASED: NEVER},
        quiet={_LAG: "7x400", _LEASED: "3x400"},
        resolved={_LAG: "7x25 0x10", _LEASED: NEVER},
    ),
    "HourwheelTargetDown": Case(
        fires={"up{}": "1x10 0x30", _STARTED: "5x10"},
        quiet={"up{}": ALWAYS, _STARTED: "5x400"},
        resolved={"up{}": "1x10 0x5 1x30", _STARTED: "5x10 6x30"},
    ),
    "HourwheelRestarting": Case(
        fires={_STARTED: "1x8 2x5 3x5 4x20"},
        quiet={_STARTED: "1x8 2x40"},
        minutes=28,
    ),
    "HourwheelNoMaster": Case(
        fires={'hourwheel_is_master{shard="0"}': NEVER},
        quiet={'hourwheel_is_master{shard="0"}': ALWAYS},
        resolved={'hourwheel_is_master{shard="0"}': "1x10 0x10 1x20"},
    ),
    "HourwheelMasterChurn": Case(
        fires={'hourwheel_takeovers_total{shard="0"}': "0x16 0+1x20"},
        quiet={'hourwheel_takeovers_total{shard="0"}': "0x16 1x20"},
    ),
    "HourwheelNoRaftLeader": Case(
        fires={"hourwheel_raft_leader_known{}": NEVER},
        quiet={"hourwheel_raft_leader_known{}": ALWAYS},
    ),
    "HourwheelNodeWithoutMajority": Case(
        fires={"hourwheel_raft_has_majority{}": NEVER},
        quiet={"hourwheel_raft_has_majority{}": ALWAYS},
    ),
    "HourwheelRaftLeaderChurn": Case(
        fires={"hourwheel_raft_leader_changes_total{}": "0x16 0+1x20"},
        quiet={"hourwheel_raft_leader_changes_total{}": "0x16 1x20"},
    ),
    "HourwheelUnderMinInSync": Case(
        fires={
            'hourwheel_in_sync_replicas{shard="0"}': ALWAYS,
            'hourwheel_min_in_sync_replicas{shard="0"}': "2x400",
        },
        quiet={
            'hourwheel_in_sync_replicas{shard="0"}': "2x400",
            'hourwheel_min_in_sync_replicas{shard="0"}': "2x400",
        },
    ),
    "HourwheelUnderReplicated": Case(
        fires={'hourwheel_under_replicated{shard="0"}': ALWAYS},
        quiet={'hourwheel_under_replicated{shard="0"}': "0x25 1x2 0x20"},
    ),
    "HourwheelClockSkew": Case(
        fires={'hourwheel_peer_clock_offset_seconds{shard="0",node="n2"}': "-0.25x40"},
        quiet={
            'hourwheel_peer_clock_offset_seconds{shard="0",node="n2"}': "-0.05x40",
            "hourwheel_clock_offset_seconds{}": "0.05x40",
        },
    ),
    "HourwheelClockUnsure": Case(
        fires={'hourwheel_cluster_clock_unsure{shard="0"}': ALWAYS},
        quiet={'hourwheel_cluster_clock_unsure{shard="0"}': NEVER},
    ),
    "HourwheelReadOnly": Case(
        fires={'hourwheel_read_only{shard="0"}': ALWAYS},
        quiet={'hourwheel_read_only{shard="0"}': NEVER},
        resolved={'hourwheel_read_only{shard="0"}': "1x20 0x20"},
    ),
    "HourwheelDiskLow": Case(
        fires={
            'hourwheel_disk_free_bytes{shard="0"}': "900x40",
            'hourwheel_disk_free_bytes_min{shard="0"}': "500x40",
        },
        quiet={
            'hourwheel_disk_free_bytes{shard="0"}': "1100x40",
            'hourwheel_disk_free_bytes_min{shard="0"}': "500x40",
        },
    ),
    "HourwheelDiskWillFill": Case(
        fires={
            'hourwheel_disk_free_bytes{shard="0"}': "100000-500x400",
            'hourwheel_disk_free_bytes_min{shard="0"}': "500x400",
        },
        quiet={
            'hourwheel_disk_free_bytes{shard="0"}': "100000-5x400",
            'hourwheel_disk_free_bytes_min{shard="0"}': "500x400",
        },
        minutes=90,
    ),
    "HourwheelFsyncSlow": Case(
        fires=_quantile(_FSYNC, "1.0"), quiet={f'{_FSYNC}{{le="{le}"}}': "0+9x400" for le in _LES}
    ),
    "HourwheelFsyncFailed": Case(
        fires={'hourwheel_last_exit{reason="FSYNC_FAILED"}': ALWAYS, _STARTED: "60x400"},
        quiet={'hourwheel_last_exit{reason="STOPPED"}': ALWAYS, _STARTED: "60x400"},
    ),
    "HourwheelCrcErrors": Case(
        fires={'hourwheel_crc_errors_total{shard="0"}': "0x20 3x20"},
        quiet={'hourwheel_crc_errors_total{shard="0"}': "3x40"},
    ),
    "HourwheelDamagedSegments": Case(
        fires={'hourwheel_scrub_damaged_segments{shard="0"}': ALWAYS},
        quiet={'hourwheel_scrub_damaged_segments{shard="0"}': "1x20 0x20"},
    ),
    "HourwheelDamagedMessages": Case(
        fires={'hourwheel_damaged_messages{shard="0"}': "4x40"},
        quiet={
            'hourwheel_damaged_messages{shard="0"}': "4x40",
            'hourwheel_is_master{shard="0"}': NEVER,
        },
    ),
    "HourwheelCertificateEnds": Case(  # promtool's time begins at 0
        fires={_CERTIFICATE: f"{29 * 86_400}x400"},
        quiet={_CERTIFICATE: f"{31 * 86_400}x400"},
        minutes=90,
        resolved={_CERTIFICATE: f"{29 * 86_400}x70 {365 * 86_400}x300"},
    ),
    "HourwheelCertificatesRefused": Case(
        fires={"hourwheel_cluster_tls_files_refused": ALWAYS, "hourwheel_tls_files_refused": NEVER},
        quiet={"hourwheel_cluster_tls_files_refused": NEVER, "hourwheel_tls_files_refused": NEVER},
        resolved={"hourwheel_cluster_tls_files_refused": "1x20 0x380"},
    ),
    "HourwheelAnyoneMayCall": Case(
        fires={"hourwheel_anyone_may_call": ALWAYS},
        quiet={"hourwheel_anyone_may_call": NEVER},
        minutes=90,
        resolved={"hourwheel_anyone_may_call": "1x70 0x330"},
    ),
    "HourwheelLoginsRefused": Case(
        fires={
            'hourwheel_rejected_total{reason="UNAUTHENTICATED"}': "0+60x400",
            'hourwheel_rejected_total{reason="OVERLOADED"}': "0+0x400",
        },
        quiet={
            'hourwheel_rejected_total{reason="UNAUTHENTICATED"}': "0+6x400",
            'hourwheel_rejected_total{reason="PERMISSION_DENIED"}': "0+90x400",
        },
        resolved={'hourwheel_rejected_total{reason="UNAUTHENTICATED"}': "0+60x12 720x388"},
    ),
    "HourwheelLoginFilesRefused": Case(
        fires={
            'hourwheel_login_files_refused{file="users"}': ALWAYS,
            'hourwheel_login_files_refused{file="token_keys"}': NEVER,
        },
        quiet={
            'hourwheel_login_files_refused{file="users"}': NEVER,
            'hourwheel_login_files_refused{file="token_keys"}': NEVER,
        },
        resolved={'hourwheel_login_files_refused{file="users"}': "1x20 0x380"},
    ),
    "HourwheelAuditFileFails": Case(
        fires={"hourwheel_audit_file_failing": ALWAYS},
        quiet={"hourwheel_audit_file_failing": NEVER},
        resolved={"hourwheel_audit_file_failing": "1x20 0x380"},
    ),
    "HourwheelPushFails": Case(
        fires={
            'hourwheel_push_posts_total{subscription="shop",result="done"}': "0+40x400",
            'hourwheel_push_posts_total{subscription="shop",result="timeout"}': "0+30x400",
            'hourwheel_push_posts_total{subscription="shop",result="failed"}': "0+30x400",
        },
        quiet={
            'hourwheel_push_posts_total{subscription="shop",result="done"}': "0+60x400",
            'hourwheel_push_posts_total{subscription="shop",result="timeout"}': "0+40x400",
        },
    ),
    "HourwheelConfigurationRefused": Case(
        fires={"hourwheel_http_files_refused": NEVER, "hourwheel_push_files_refused": ALWAYS},
        quiet={"hourwheel_http_files_refused": NEVER, "hourwheel_push_files_refused": NEVER},
        resolved={"hourwheel_http_files_refused": "1x20 0x380"},
    ),
    "HourwheelCallsFail": Case(
        fires={
            'hourwheel_grpc_server_handled_total{method="Publish",code="OK"}': "0+90x40",
            'hourwheel_grpc_server_handled_total{method="Publish",code="INTERNAL"}': "0+10x40",
        },
        quiet={
            'hourwheel_grpc_server_handled_total{method="Publish",code="OK"}': "0+90x40",
            'hourwheel_grpc_server_handled_total{method="Publish",code="NOT_FOUND"}': "0+10x40",
        },
    ),
    "HourwheelLoopStalls": Case(
        fires=_quantile(_LOOP, "0.1"), quiet={f'{_LOOP}{{le="{le}"}}': "0+9x400" for le in _LES}
    ),
}
