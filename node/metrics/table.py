"""Everything that the node tells Prometheus, in one table. Nothing here is done for each message.

The core keeps plain numbers (node/telemetry/stats.py). They are read when somebody scrapes, on the
loop's thread (node/metrics/collector.py), and become text on a thread of the HTTP server
(node/metrics/http.py). Names begin with `hourwheel_`, values are in base units named at the end,
counters end with `_total`. Labels are few and bounded: never a message, a client or a due time.

docs/METRICS.md is made from here, by `page`.
"""

from typing import Final

from node.metrics import cluster, delivery
from node.metrics.family import (
    SECONDS,
    Family,
    node_gauge,
    shard_counter,
    shard_gauge,
    shard_histogram,
)

FAMILIES: Final = (
    # --- delay
    shard_histogram(
        "hourwheel_delivery_lateness_seconds",
        "How long after its due time a message became visible to consumers: the objective.",
        lambda it: it.stats.lateness,
    ),
    shard_counter(
        "hourwheel_early_deliveries_total",
        "Messages visible before they were due. Must be 0.",
        lambda it: it.stats.early_deliveries,
    ),
    shard_gauge(
        "hourwheel_wheel_pending_messages",
        "Scheduled, neither released nor cancelled.",
        lambda it: it.status.pending_count,
    ),
    shard_gauge(
        "hourwheel_wheel_overdue_messages",
        "Pending although due: the dispatcher is behind by so many.",
        lambda it: it.gauges.overdue_count,
    ),
    shard_gauge(
        "hourwheel_wheel_dequeue_lag_seconds",
        "Age of the oldest overdue message; 0 without one.",
        lambda it: it.gauges.cursor_lag_ms * SECONDS,
    ),
    Family(
        "hourwheel_wheel_due_messages",
        "gauge",
        ("shard", "within_seconds"),
        "Pending messages that are due within so many seconds, overdue ones included; cancelled"
        " ones are counted until they would be due.",
        lambda it: [((str(it.status.shard), one.within_seconds), one.messages) for one in it.due],
        is_settled=True,
    ),
    shard_gauge(
        "hourwheel_wheel_enqueue_lag_seconds",
        "How long the oldest accepted batch waits to be applied to the wheel; 0 without one.",
        lambda it: it.gauges.enqueue_lag_ms * SECONDS,
    ),
    shard_gauge(
        "hourwheel_wheel_next_due_timestamp_seconds",
        "Due time of the earliest pending message; 0 for none.",
        lambda it: it.status.next_due_ms * SECONDS,
    ),
    shard_gauge("hourwheel_wheel_runs", "Runs of the wheel.", lambda it: it.status.run_count),
    shard_gauge(
        "hourwheel_wheel_memtable_messages",
        "Scheduled messages that are in no run yet.",
        lambda it: it.gauges.memtable_units,
    ),
    shard_gauge(
        "hourwheel_wheel_near_bytes",
        "Memory for what is due next.",
        lambda it: it.gauges.near_bytes,
    ),
    shard_counter(
        "hourwheel_wheel_flushes_total", "Memtables written to runs.", lambda it: it.stats.flushes
    ),
    shard_counter("hourwheel_wheel_merges_total", "Merges of runs.", lambda it: it.stats.merges),
    shard_counter(
        "hourwheel_wheel_cascades_total",
        "Days that were cascaded into hours.",
        lambda it: it.stats.cascades,
    ),
    shard_gauge(
        "hourwheel_wheel_recovery_seconds",
        "How long opening took at the start, replay included.",
        lambda it: it.stats.recovery_seconds,
    ),
    # --- messages
    shard_counter(
        "hourwheel_published_messages_total", "Messages accepted.", lambda it: it.stats.published
    ),
    shard_counter(
        "hourwheel_duplicate_messages_total",
        "Messages that were sent again and known already.",
        lambda it: it.stats.duplicates,
    ),
    shard_gauge(
        "hourwheel_released_messages",
        "Messages released in the shard's whole life.",
        lambda it: it.status.released_count,
    ),
    shard_counter(
        "hourwheel_delivered_messages_total",
        "Messages handed to consumers, repeated deliveries included.",
        lambda it: it.stats.delivered,
    ),
    shard_counter(
        "hourwheel_acknowledged_messages_total",
        "Messages that a group is done with.",
        lambda it: it.stats.acknowledged,
    ),
    shard_counter(
        "hourwheel_redelivered_messages_total",
        "Messages scheduled again for a group: given back, or their lease ran out.",
        lambda it: it.stats.redelivered,
    ),
    shard_counter(
        "hourwheel_dead_lettered_messages_total",
        "Messages whose attempts were used up.",
        lambda it: it.stats.dead_lettered,
    ),
    shard_counter(
        "hourwheel_groups_expired_total",
        "Groups that receiving made and no client used, deleted by the master.",
        lambda it: it.stats.groups_expired,
    ),
    shard_counter(
        "hourwheel_broadcast_members_expired_total",
        "Members of broadcasts that were away for too long, deleted by the master.",
        lambda it: it.stats.members_expired,
    ),
    shard_counter(
        "hourwheel_topics_expired_total",
        "Topics that publishing made and no client used, deleted by the master.",
        lambda it: it.stats.topics_expired,
    ),
    shard_counter(
        "hourwheel_cancelled_messages_total",
        "Messages taken back before their release.",
        lambda it: it.stats.cancelled,
    ),
    shard_counter(
        "hourwheel_rescheduled_messages_total",
        "Messages moved to another due time before their release.",
        lambda it: it.stats.rescheduled,
    ),
    shard_gauge(
        "hourwheel_log_retention_seconds",
        "How long the log is kept: as the topic asks that asks for most, or log.retention_ms.",
        lambda it: it.gauges.log_retention_ms * SECONDS,
    ),
    shard_gauge(
        "hourwheel_recurrences",
        "Recurrences, paused ones and those that have ended included.",
        lambda it: it.gauges.recurrence_count,
    ),
    shard_counter(
        "hourwheel_occurrences_total",
        "Messages that recurrences have published.",
        lambda it: it.stats.occurrences,
    ),
    shard_counter(
        "hourwheel_occurrences_skipped_total",
        "How often occurrences were left out, one or several at once: an outage had delayed them.",
        lambda it: it.stats.occurrences_skipped,
    ),
    shard_counter(
        "hourwheel_group_limited_polls_total",
        "Times that polls waited, or got nothing, for their group's own limits.",
        lambda it: it.stats.limited_polls,
    ),
    shard_counter(
        "hourwheel_dedup_rejected_messages_total",
        "Messages refused because a pending one had their dedup key.",
        lambda it: it.stats.dedup_rejected,
    ),
    shard_counter(
        "hourwheel_dedup_kept_messages_total",
        "Messages not stored because the pending one with their dedup key stands for them.",
        lambda it: it.stats.dedup_kept,
    ),
    shard_counter(
        "hourwheel_dedup_replaced_messages_total",
        "Pending messages replaced by a later one with their dedup key.",
        lambda it: it.stats.dedup_replaced,
    ),
    shard_counter(
        "hourwheel_transactions_prepared_total",
        "Transactions prepared.",
        lambda it: it.stats.transactions_prepared,
    ),
    shard_counter(
        "hourwheel_transactions_committed_total",
        "Transactions whose messages were published.",
        lambda it: it.stats.transactions_committed,
    ),
    shard_counter(
        "hourwheel_transactions_rolled_back_total",
        "Transactions that a producer or an operator rolled back.",
        lambda it: it.stats.transactions_rolled_back,
    ),
    shard_counter(
        "hourwheel_transactions_expired_total",
        "Transactions rolled back since no producer had said in time what became of them.",
        lambda it: it.stats.transactions_expired,
    ),
    shard_counter(
        "hourwheel_transaction_checks_total",
        "Check-backs handed out to producers.",
        lambda it: it.stats.transaction_checks,
    ),
    shard_gauge(
        "hourwheel_transactions_open",
        "Transactions that are prepared and not decided, on the master.",
        lambda it: it.stats.transactions_open,
    ),
    shard_gauge(
        "hourwheel_transaction_oldest_seconds",
        "How long ago the oldest of them was prepared; 0 without one.",
        lambda it: (
            (it.now_ms - it.stats.transactions_oldest_ms) * SECONDS
            if it.stats.transactions_oldest_ms
            else 0.0
        ),
    ),
    *delivery.FAMILIES,
    Family(
        "hourwheel_consumer_lag_messages",
        "gauge",
        ("group", "topic"),
        "Released messages that a group has neither acknowledged nor given up; of those most"
        " behind (key telemetry.lag_series).",
        lambda it: [((one.group, one.topic), one.unresolved_count) for one in it.lag.series],
        is_settled=True,
    ),
    Family(
        "hourwheel_consumer_leased_messages",
        "gauge",
        ("group", "topic"),
        "Those of them that are leased now.",
        lambda it: [((one.group, one.topic), one.leased_count) for one in it.lag.series],
        is_settled=True,
    ),
    Family(
        "hourwheel_consumer_blocked_messages",
        "gauge",
        ("group", "topic"),
        "Of an ordered group: those that have used up their attempts, and block their keys.",
        lambda it: [((one.group, one.topic), one.blocked_count) for one in it.lag.series],
    ),
    Family(
        "hourwheel_consumer_lag_seconds",
        "gauge",
        ("group", "topic"),
        "How long ago the oldest of these messages could be received first; 0 without one.",
        lambda it: [((x.group, x.topic), x.age_ms(it.now_ms) * SECONDS) for x in it.lag.series],
        is_settled=True,
    ),
    node_gauge(
        "hourwheel_consumer_lag_all_seconds",
        "The same of all groups and topics together: the oldest of all that groups have to do.",
        lambda it: it.lag.age_ms(it.now_ms) * SECONDS,
    ),
    node_gauge(
        "hourwheel_consumer_lag_all_messages",
        "Released messages that groups have still to do, all groups and topics together.",
        lambda it: it.lag.unresolved_count,
    ),
    node_gauge(
        "hourwheel_consumer_leased_all_messages",
        "Those of them that are leased now.",
        lambda it: it.lag.leased_count,
    ),
    node_gauge(
        "hourwheel_consumer_lag_omitted_series",
        "Groups and topics that have no series of their own above, being less behind.",
        lambda it: it.lag.omitted_count,
    ),
    # --- names
    shard_gauge(
        "hourwheel_topics",
        "Topics, the cluster's own not counted (key limits.topics).",
        lambda it: it.gauges.topic_count,
    ),
    shard_gauge(
        "hourwheel_consumer_groups",
        "Consumer groups (key limits.groups).",
        lambda it: it.gauges.group_count,
    ),
    shard_gauge(
        "hourwheel_subscriptions",
        "Subscriptions of groups to topics (key limits.subscriptions).",
        lambda it: it.gauges.subscription_count,
    ),
    # --- log and disk
    shard_histogram(
        "hourwheel_log_append_duration_seconds",
        "Group commits: from the beginning of the write until it is durable as configured.",
        lambda it: it.stats.append,
    ),
    shard_histogram(
        "hourwheel_log_fsync_duration_seconds",
        "Each fdatasync of the commit log.",
        lambda it: it.stats.fsync,
    ),
    shard_histogram(
        "hourwheel_log_group_commit_batches",
        "Record batches that were written together.",
        lambda it: it.stats.commit_batches,
    ),
    shard_counter(
        "hourwheel_log_written_bytes_total",
        "Bytes written to the commit log.",
        lambda it: it.stats.commit_bytes,
    ),
    shard_gauge(
        "hourwheel_log_start_offset",
        "First byte of the log that is kept.",
        lambda it: it.status.log_start_offset,
    ),
    shard_gauge(
        "hourwheel_log_end_offset", "End of what is written.", lambda it: it.status.log_end_offset
    ),
    shard_gauge(
        "hourwheel_high_watermark",
        "End of what is durable as configured.",
        lambda it: it.status.high_watermark,
    ),
    shard_gauge(
        "hourwheel_applied_offset",
        "End of what the views have applied.",
        lambda it: it.status.applied_offset,
    ),
    shard_gauge(
        "hourwheel_checkpoint_offset",
        "From here a restart reads the log.",
        lambda it: it.status.checkpoint_offset,
    ),
    shard_counter(
        "hourwheel_checkpoints_total", "Checkpoints written.", lambda it: it.stats.checkpoints
    ),
    shard_gauge(
        "hourwheel_checkpoint_duration_seconds",
        "How long the last checkpoint took.",
        lambda it: it.stats.checkpoint_seconds,
    ),
    shard_gauge(
        "hourwheel_checkpoint_age_seconds",
        "Time since the last checkpoint of this process; 0 before the first.",
        lambda it: (it.now_ms - (it.stats.checkpoint_ms or it.now_ms)) * SECONDS,
    ),
    shard_counter(
        "hourwheel_crc_errors_total",
        "Stored bytes that failed their checksum; they are never served.",
        lambda it: it.stats.crc_errors,
    ),
    shard_gauge(
        "hourwheel_damaged_messages",
        "Messages that groups wait for and that this master cannot read, nor get elsewhere so far.",
        lambda it: it.stats.damaged_messages,
    ),
    shard_counter(
        "hourwheel_damaged_messages_fetched_total",
        "Damaged messages whose bytes were found in another replica, or in this one's log.",
        lambda it: it.stats.damaged_fetched,
    ),
    shard_counter(
        "hourwheel_repaired_files_total",
        "Damaged files of the log and of the wheel that were rewritten with good bytes.",
        lambda it: it.stats.repaired_files,
    ),
    shard_counter(
        "hourwheel_scrub_bytes_total",
        "Bytes of log, views and delay logs that were read only to be verified, and are well.",
        lambda it: it.stats.scrub_bytes,
    ),
    shard_counter(
        "hourwheel_scrub_passes_total",
        "How often all of log, views and delay logs was verified.",
        lambda it: it.stats.scrub_passes,
    ),
    shard_gauge(
        "hourwheel_scrub_last_pass_timestamp_seconds",
        "When the last of these passes ended; 0 before the first.",
        lambda it: it.stats.scrub_pass_ms * SECONDS,
    ),
    shard_gauge(
        "hourwheel_scrub_damaged_views",
        "Files of the views (queues, runs, checkpoint and others) that the last look found damaged."
        " Must be 0.",
        lambda it: it.stats.scrub_damaged_views,
    ),
    shard_gauge(
        "hourwheel_scrub_damaged_messages",
        "Messages in delay logs that no group waits for yet, that are damaged here, and that no"
        " other replica has sent. Must be 0.",
        lambda it: it.stats.scrub_damaged_messages,
    ),
    shard_gauge(
        "hourwheel_scrub_damaged_segments",
        "Segments of the log in which damage was found and which are still there. Must be 0.",
        lambda it: it.stats.scrub_damaged_segments,
    ),
    shard_gauge(
        "hourwheel_disk_used_bytes",
        "Bytes of the log, the delay logs and the runs.",
        lambda it: it.status.disk_bytes,
    ),
    shard_gauge(
        "hourwheel_disk_free_bytes",
        "Bytes free for the data directory.",
        lambda it: it.gauges.disk_free_bytes,
    ),
    shard_gauge(
        "hourwheel_disk_free_bytes_min",
        "With less free no messages are accepted (key disk.free_bytes_min).",
        lambda it: it.gauges.disk_free_bytes_min,
    ),
    shard_gauge(
        "hourwheel_read_only",
        "1 while messages are refused because the disk is full.",
        lambda it: float(bool(it.gauges.read_only_reason)),
    ),
    # --- API
    Family(
        "hourwheel_grpc_server_handled_total",
        "counter",
        ("method", "code"),
        "Calls by method and gRPC status code; each batch of a stream counts as one.",
        lambda it: [
            ((method.name, code), count)
            for method in it.api.methods.values()
            for code, count in method.handled.items()
        ],
    ),
    Family(
        "hourwheel_grpc_server_handling_seconds",
        "histogram",
        ("method",),
        "From a call's arrival to its answer; the waiting of long polls is in it.",
        lambda it: [((method.name,), method.seconds) for method in it.api.methods.values()],
    ),
    Family(
        "hourwheel_rejected_total",
        "counter",
        ("reason",),
        "Calls, batches, and requests for /metrics and /stalls that were refused, by typed reason.",
        lambda it: [((reason,), count) for reason, count in it.api.rejected.items()],
    ),
    Family(
        "hourwheel_quota_rejected_total",
        "counter",
        ("quota",),
        "Calls and batches that were refused by a principal's quota, by which limit of it.",
        lambda it: [((quota,), count) for quota, count in it.api.rejected_by_quota.items()],
    ),
    node_gauge(
        "hourwheel_inflight_requests", "Calls being answered.", lambda it: it.api.requests_in_flight
    ),
    node_gauge(
        "hourwheel_inflight_bytes",
        "Requests being worked on, and answers that are not read yet.",
        lambda it: it.api.bytes_in_flight + it.answer_bytes,
    ),
    node_gauge(
        "hourwheel_long_polls",
        "Receive calls that wait for a message.",
        lambda it: it.api.long_polls,
    ),
    Family(
        "hourwheel_request_bytes_total",
        "counter",
        (),
        "Bytes of all requests that came in, refused ones too.",
        lambda it: [((), it.api.bytes_taken)],
    ),
    node_gauge("hourwheel_publish_streams", "Open publish streams.", lambda it: it.api.streams),
    Family(
        "hourwheel_session_frames_total",
        "counter",
        (),
        "Frames of sessions, read and written: far fewer than calls where there is much to do.",
        lambda it: [((), it.api.session_frames)],
    ),
    node_gauge("hourwheel_sessions", "Open sessions of clients.", lambda it: it.api.sessions),
    node_gauge(
        "hourwheel_tls_files_refused",
        "1 while the files of section tls cannot be used and the former ones stay in use.",
        lambda it: it.api.tls_files_refused,
    ),
    Family(
        "hourwheel_login_files_refused",
        "gauge",
        ("file",),
        "1 while the file of users (users) or of the keys of tokens (token_keys) cannot be used and"
        " what it held before counts on; only of files that are configured.",
        lambda it: [
            ((kind,), float(is_refused)) for kind, is_refused in it.api.login_files_refused.items()
        ],
    ),
    node_gauge(
        "hourwheel_audit_file_failing",
        "1 while access.audit_file cannot be written; its events are in the log.",
        lambda it: it.api.audit_file_failing,
    ),
    node_gauge(
        "hourwheel_anyone_may_call",
        "1 where the API listens beyond this machine, and neither access control nor certificates"
        " keep anybody out.",
        lambda it: it.api.anyone_may_call,
    ),
    # --- node
    node_gauge(
        "hourwheel_clock_offset_seconds",
        "The machine's wall clock minus the node's own.",
        lambda it: it.facts.clock_error_ms * SECONDS,
    ),
    node_gauge(
        "hourwheel_clock_step_pending",
        "1 while the wall clock has made a step that is not followed.",
        lambda it: float(it.facts.clock_step_pending),
    ),
    Family(
        "hourwheel_loop_delay_seconds",
        "histogram",
        (),
        "By how much the event loop was late: a sample, 10 to 40 times a second.",
        lambda it: [((), it.facts.process.stats.loop_delay)],
    ),
    Family(
        "hourwheel_loop_stalls_total",
        "counter",
        ("cause",),
        "Turns of the event loop above telemetry.stall_ms, by what took half of the time.",
        lambda it: [
            ((cause,), count) for cause, count in it.facts.process.stats.stalls.by_cause.items()
        ],
    ),
    Family(
        "hourwheel_loop_stall_seconds",
        "histogram",
        (),
        "How long each of these took.",
        lambda it: [((), it.facts.process.stats.stalls.seconds)],
    ),
    Family(
        "hourwheel_gc_pause_seconds",
        "histogram",
        ("generation",),
        "How long Python's garbage collector stopped the process, each time.",
        lambda it: [
            ((str(generation),), pauses)
            for generation, pauses in enumerate(it.facts.process.stats.gc_pauses)
        ],
    ),
    Family(
        "hourwheel_last_exit",
        "gauge",
        ("reason",),
        "How the process before this one ended, always 1: FIRST_START, STOPPED, KILLED, or an"
        " error such as FSYNC_FAILED.",
        lambda it: [((it.facts.process.last_exit,), 1.0)],
    ),
    node_gauge(
        "hourwheel_start_timestamp_seconds",
        "When the process started.",
        lambda it: it.facts.started_ms * SECONDS,
    ),
    Family(
        "hourwheel_build_info",
        "gauge",
        ("version", "python"),
        "What runs here; always 1.",
        lambda it: [((it.facts.version, it.facts.python), 1.0)],
    ),
    *cluster.FAMILIES,
)
