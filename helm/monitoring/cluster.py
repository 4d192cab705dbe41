"""The log, its disk and replicas; and what the nodes agree on."""

from typing import Final

from helm.monitoring.panels import Dashboard, Panel, Row, ask, by_instance, quantiles

LOG: Final = Dashboard(
    "log",
    "Log and replication",
    "The commit log, its disk, and whether others have what the master has.",
    (
        Row(
            "Commit log",
            (
                Panel(
                    "Group commit",
                    "s",
                    quantiles("hourwheel_log_append_duration_seconds"),
                    "Until a group of batches was durable as configured.",
                ),
                Panel(
                    "fdatasync, p99",
                    "s",
                    quantiles("hourwheel_log_fsync_duration_seconds", "instance")[1:2],
                    "Each publish waits for one on as many nodes as must have it.",
                    is_bad_above=0.5,
                ),
                Panel(
                    "Batches of a commit",
                    "none",
                    quantiles("hourwheel_log_group_commit_batches")[:2],
                    "More under load: that is what keeps throughput up on a slow disk.",
                ),
                Panel(
                    "Written",
                    "Bps",
                    [by_instance("hourwheel_log_written_bytes_total", "rate")],
                    "To the commit log.",
                ),
                Panel(
                    "Log kept",
                    "bytes",
                    [
                        ask(
                            "max by (instance) (hourwheel_log_end_offset{%s}"
                            " - hourwheel_log_start_offset{%s})",
                            "{{instance}}",
                        )
                    ],
                    "From the first byte that is kept to the end.",
                ),
                Panel(
                    "To replay after a crash",
                    "bytes",
                    [
                        ask(
                            "max by (instance) (hourwheel_log_end_offset{%s}"
                            " - hourwheel_checkpoint_offset{%s})",
                            "{{instance}}",
                        )
                    ],
                    "What a restart reads. Checkpoints keep it small.",
                ),
            ),
        ),
        Row(
            "Replication",
            (
                Panel(
                    "In-sync replicas",
                    "none",
                    [
                        by_instance("hourwheel_in_sync_replicas"),
                        ask("max(hourwheel_min_in_sync_replicas{%s})", "needed"),
                    ],
                    "As each node knows it.",
                ),
                Panel(
                    "Follower lag",
                    "bytes",
                    [ask("max by (node) (hourwheel_follower_lag_bytes{%s})", "{{node}}")],
                    "What a follower has not acknowledged; told by the master.",
                ),
                Panel(
                    "Since the last acknowledgement",
                    "s",
                    [ask("max by (node) (hourwheel_follower_ack_age_seconds{%s})", "{{node}}")],
                    "Of each follower; told by the master.",
                    is_bad_above=1.0,
                ),
                Panel(
                    "Not committed",
                    "bytes",
                    [by_instance("hourwheel_uncommitted_bytes")],
                    "Of the log, beyond the high watermark.",
                ),
                Panel(
                    "Not applied",
                    "bytes",
                    [
                        ask(
                            "max by (instance) (hourwheel_high_watermark{%s}"
                            " - hourwheel_applied_offset{%s})",
                            "{{instance}}",
                        )
                    ],
                    "Committed, and not in the views yet.",
                ),
                Panel(
                    "Snapshots",
                    "none",
                    [
                        ask("sum(hourwheel_snapshots_sent_total{%s})", "sent"),
                        ask("sum(hourwheel_snapshots_received_total{%s})", "received"),
                    ],
                    "Since the nodes started.",
                ),
            ),
        ),
        Row(
            "Disk",
            (
                Panel(
                    "Free",
                    "bytes",
                    [
                        by_instance("hourwheel_disk_free_bytes"),
                        ask("max(hourwheel_disk_free_bytes_min{%s})", "messages are refused below"),
                    ],
                    "For the data directory.",
                ),
                Panel(
                    "Used",
                    "bytes",
                    [by_instance("hourwheel_disk_used_bytes")],
                    "By log, delay logs and runs.",
                ),
                Panel(
                    "Damage",
                    "none",
                    [
                        ask("sum(hourwheel_crc_errors_total{%s})", "checksums that failed"),
                        ask("sum(hourwheel_repaired_files_total{%s})", "files repaired"),
                        ask("sum(hourwheel_scrub_damaged_segments{%s})", "damaged segments now"),
                        ask("sum(hourwheel_scrub_damaged_views{%s})", "damaged views now"),
                        ask(
                            "sum(hourwheel_scrub_damaged_messages{%s})", "found before they are due"
                        ),
                        ask("max(hourwheel_damaged_messages{%s})", "messages that wait"),
                    ],
                    "0 on sound machines.",
                    is_bad_above=1.0,
                ),
                Panel(
                    "Refusing messages",
                    "none",
                    [by_instance("hourwheel_read_only")],
                    "1 while messages are refused because a disk is full.",
                    is_bad_above=1.0,
                ),
                Panel(
                    "Scrubbed",
                    "Bps",
                    [by_instance("hourwheel_scrub_bytes_total", "rate")],
                    "Old log that is read only to be verified.",
                ),
                Panel(
                    "Last whole scrub",
                    "s",
                    [
                        ask(
                            "max by (instance) (time()"
                            " - (hourwheel_scrub_last_pass_timestamp_seconds{%s} > 0))"
                            " or vector(0)",
                            "{{instance}}",
                        )
                    ],
                    "How long ago all that is stored was verified; 0 before the first time.",
                ),
                Panel(
                    "Checkpoints",
                    "s",
                    [
                        by_instance("hourwheel_checkpoint_duration_seconds"),
                    ],
                    "How long the last one took.",
                ),
            ),
        ),
    ),
)


CONTROL_PLANE: Final = Dashboard(
    "control-plane",
    "Control plane",
    "What the nodes agree on: who is master, and who is in sync.",
    (
        Row(
            "Mastership",
            (
                Panel(
                    "Master",
                    "none",
                    [by_instance("hourwheel_is_master")],
                    "1 for the node that may act as master.",
                    is_stacked=True,
                ),
                Panel(
                    "Epoch",
                    "none",
                    [by_instance("hourwheel_epoch")],
                    "As each node knows it; a step is a change of master.",
                ),
                Panel(
                    "Takeovers",
                    "none",
                    [
                        ask("sum(increase(hourwheel_takeovers_total{%s}[15m]))", "in 15 minutes"),
                        ask(
                            "sum(increase(hourwheel_step_downs_requested_total{%s}[15m]))",
                            "asked for by a master",
                        ),
                    ],
                    "Changes of master.",
                    is_bad_above=4,
                ),
                Panel(
                    "Last takeover",
                    "s",
                    [by_instance("hourwheel_takeover_duration_seconds")],
                    "From the election until it served, the old lease included.",
                ),
                Panel(
                    "Lease left",
                    "s",
                    [by_instance("hourwheel_lease_left_seconds")],
                    "How long the master may act without hearing from others.",
                ),
                Panel(
                    "Since the master's heartbeat",
                    "s",
                    [by_instance("hourwheel_heartbeat_age_seconds")],
                    "On followers.",
                ),
            ),
        ),
        Row(
            "Raft",
            (
                Panel(
                    "Knows a leader",
                    "none",
                    [by_instance("hourwheel_raft_leader_known")],
                    "1 while a node's control process knows who leads.",
                ),
                Panel(
                    "Hears a majority",
                    "none",
                    [by_instance("hourwheel_raft_has_majority")],
                    "1 while a node's control process does.",
                ),
                Panel(
                    "Term",
                    "none",
                    [by_instance("hourwheel_raft_term")],
                    "A step is an election of a leader. Never an epoch.",
                ),
                Panel(
                    "Changes of leader",
                    "none",
                    [
                        ask(
                            "max(increase(hourwheel_raft_leader_changes_total{%s}[15m]))",
                            "in 15 minutes",
                        )
                    ],
                    "As the node that saw most of them tells.",
                    is_bad_above=4,
                ),
                Panel(
                    "Commands",
                    "s",
                    [
                        ask(
                            "sum(rate(hourwheel_control_command_duration_seconds_sum{%s}[15m]))"
                            " / (sum(rate(hourwheel_control_command_duration_seconds_count{%s}"
                            "[15m])) > 0) or vector(0)",
                            "mean of 15 minutes",
                        )
                    ],
                    "Until a change is agreed upon. They are few: a change of master or of the"
                    " in-sync set.",
                ),
                Panel(
                    "Commands that failed",
                    "none",
                    [by_instance("hourwheel_control_commands_failed_total", "increase")],
                    "Not carried out, or nobody knows.",
                ),
                Panel(
                    "Revision",
                    "none",
                    [by_instance("hourwheel_control_revision")],
                    "Changes of the agreed state, as each node knows it.",
                ),
                Panel(
                    "Stalls of control processes",
                    "none",
                    [by_instance("hourwheel_control_stalls_total", "increase")],
                    "Their Raft thread stood still for more than 250 ms.",
                ),
                Panel(
                    "Control processes that ended",
                    "none",
                    [by_instance("hourwheel_control_restarts_total")],
                    "By themselves, over the nodes' lives.",
                ),
            ),
        ),
        Row(
            "Certificates and logins",
            (
                Panel(
                    "Certificates end in",
                    "s",
                    [
                        ask(
                            "min by (instance, certificate) ("
                            "hourwheel_tls_certificate_not_after_timestamp_seconds{%s} - time())"
                            " or vector(0)",
                            "{{instance}} {{certificate}}",
                        )
                    ],
                    "Of those that the nodes show to each other; 0 without TLS between them.",
                ),
                Panel(
                    "Certificate files refused",
                    "none",
                    [
                        ask("max by (instance) (hourwheel_tls_files_refused{%s})", "{{instance}}"),
                        ask(
                            "max by (instance) (hourwheel_cluster_tls_files_refused{%s})",
                            "{{instance}} between nodes",
                        ),
                    ],
                    "1: files of certificates have changed and are of no use; the log says why.",
                ),
                Panel(
                    "Files of logins refused",
                    "none",
                    [
                        ask(
                            "max by (instance, file) (hourwheel_login_files_refused{%s})"
                            " or vector(0)",
                            "{{instance}} {{file}}",
                        )
                    ],
                    "1: users or keys of tokens have changed and are of no use: those of before"
                    " count on.",
                ),
            ),
        ),
        Row(
            "Clocks",
            (
                Panel(
                    "Offset to the master",
                    "s",
                    [
                        ask(
                            "max by (node) (abs(hourwheel_peer_clock_offset_seconds{%s}))",
                            "{{node}}",
                        )
                    ],
                    "Of each follower's clock.",
                    is_bad_above=0.1,
                ),
                Panel(
                    "Offset to the wall clock",
                    "s",
                    [
                        ask(
                            "max by (instance) (abs(hourwheel_clock_offset_seconds{%s}))",
                            "{{instance}}",
                        )
                    ],
                    "The machine's wall clock against the node's own steady one.",
                    is_bad_above=0.1,
                ),
                Panel(
                    "Cluster clock unsure",
                    "none",
                    [by_instance("hourwheel_cluster_clock_unsure")],
                    "1: a master does not know the clocks of a majority, and releases nothing.",
                    is_bad_above=1,
                ),
            ),
        ),
    ),
)
