"""One node: what clients ask of it, and what it takes of its machine."""

from typing import Final

from helm.monitoring.panels import Dashboard, Panel, Row, ask, by_instance, quantiles

CALLS: Final = Dashboard(
    "calls",
    "Clients and calls",
    "What clients ask, how long it takes, and what is refused.",
    (
        Row(
            "Calls",
            (
                Panel(
                    "Calls by method",
                    "ops",
                    [
                        ask(
                            "sum by (method) (rate(hourwheel_grpc_server_handled_total{%s}"
                            "[$__rate_interval]))",
                            "{{method}}",
                        )
                    ],
                    "Each batch of a stream counts as one.",
                    is_stacked=True,
                ),
                Panel(
                    "Calls by outcome",
                    "ops",
                    [
                        ask(
                            "sum by (code) (rate(hourwheel_grpc_server_handled_total{%s}"
                            "[$__rate_interval]))",
                            "{{code}}",
                        )
                    ],
                    "By gRPC's status code.",
                    is_stacked=True,
                ),
                Panel(
                    "Refused",
                    "ops",
                    [
                        ask(
                            "sum by (reason) (rate(hourwheel_rejected_total{%s}"
                            "[$__rate_interval]))",
                            "{{reason}}",
                        )
                    ],
                    "By typed reason (docs/ERRORS.md). NOT_MASTER leads clients to the master.",
                    is_stacked=True,
                ),
                Panel(
                    "Refused by quotas",
                    "ops",
                    [
                        ask(
                            "sum by (quota) (rate(hourwheel_quota_rejected_total{%s}"
                            "[$__rate_interval]))",
                            "{{quota}}",
                        )
                    ],
                    "By the limit that a principal reached.",
                ),
                Panel(
                    "p99 by method",
                    "s",
                    quantiles("hourwheel_grpc_server_handling_seconds", "method")[1:2],
                    "The waiting of long polls (Receive) is in it.",
                ),
                Panel(
                    "Publishing",
                    "short",
                    [
                        ask(
                            "sum by (le) (rate(hourwheel_grpc_server_handling_seconds_bucket"
                            '{%s,method=~"Publish.*"}[$__rate_interval]))'
                        )
                    ],
                    "Calls and batches a second, by how long they took.",
                    kind="heatmap",
                    width=16,
                ),
            ),
        ),
        Row(
            "At this moment",
            (
                Panel(
                    "Calls being answered",
                    "none",
                    [by_instance("hourwheel_inflight_requests")],
                    "Key limits.requests_in_flight.",
                ),
                Panel(
                    "Polls that wait",
                    "none",
                    [by_instance("hourwheel_long_polls")],
                    "Consumers that wait for a message (key limits.long_polls).",
                ),
                Panel(
                    "Publish streams",
                    "none",
                    [by_instance("hourwheel_publish_streams")],
                    "Producers that are connected (key limits.publish_streams).",
                ),
                Panel(
                    "Sessions",
                    "none",
                    [by_instance("hourwheel_sessions")],
                    "Client processes that are connected (key limits.sessions).",
                ),
                Panel(
                    "Memory for requests and answers",
                    "bytes",
                    [by_instance("hourwheel_inflight_bytes")],
                    "Keys limits.bytes_in_flight and limits.answer_bytes.",
                ),
                Panel(
                    "Taken in",
                    "Bps",
                    [by_instance("hourwheel_request_bytes_total", "rate")],
                    "Bytes of requests, refused ones too.",
                ),
                Panel(
                    "Passed on to the master",
                    "ops",
                    [by_instance("hourwheel_forwarded_calls_total", "rate")],
                    "Calls of clients that do not go to the master themselves.",
                ),
            ),
        ),
        Row(
            "Names",
            (
                Panel("Topics", "none", [by_instance("hourwheel_topics")], "Key limits.topics."),
                Panel(
                    "Consumer groups",
                    "none",
                    [by_instance("hourwheel_consumer_groups")],
                    "Key limits.groups.",
                ),
                Panel(
                    "Filters",
                    "ops",
                    [
                        ask(f"sum(rate({metric}{{%s}}[$__rate_interval]))", legend)
                        for metric, legend in (
                            ("hourwheel_filter_skipped_messages_total", "skipped by gene"),
                            ("hourwheel_filter_checked_messages_total", "read"),
                            ("hourwheel_filter_false_positives_total", "read in vain"),
                        )
                    ],
                    "Messages that filters looked at. Many in vain: docs/FILTERS.md, genes.",
                ),
            ),
        ),
    ),
)


NODE: Final = Dashboard(
    "node",
    "Node",
    "One process: what it takes of its machine, and what keeps it from its work.",
    (
        Row(
            "Process",
            (
                Panel(
                    "Processor",
                    "none",
                    [by_instance("process_cpu_seconds_total", "rate")],
                    "Cores in use, without the control process.",
                ),
                Panel(
                    "Memory",
                    "bytes",
                    [by_instance("process_resident_memory_bytes")],
                    "Resident. It does not grow with what is pending.",
                ),
                Panel(
                    "Open files",
                    "none",
                    [
                        by_instance("process_open_fds"),
                        ask("min(process_max_fds{%s})", "allowed"),
                    ],
                    "Sockets of clients among them.",
                ),
                Panel(
                    "Event loop, p99 delay",
                    "s",
                    quantiles("hourwheel_loop_delay_seconds", "instance")[1:2],
                    "By how much the loop was late: a sample, 10 to 40 times a second.",
                    is_bad_above=0.05,
                ),
                Panel(
                    "Event loop, stalls",
                    "ops",
                    [
                        ask(
                            "sum by (cause) (rate(hourwheel_loop_stalls_total{%s}"
                            "[$__rate_interval]))",
                            "{{cause}}",
                        )
                    ],
                    "Turns a second that took more than telemetry.stall_ms, by their cause; a"
                    " node's /stalls has the last ones.",
                ),
                Panel(
                    "Garbage collection",
                    "percentunit",
                    [
                        ask(
                            "sum by (instance) (rate(hourwheel_gc_pause_seconds_sum{%s}"
                            "[$__rate_interval]))",
                            "{{instance}}",
                        )
                    ],
                    "Share of time that Python's collector stopped the process.",
                    is_bad_above=0.05,
                ),
                Panel(
                    "Longest collections",
                    "s",
                    quantiles("hourwheel_gc_pause_seconds", "generation")[1:2],
                    "p99 of a pause, by generation.",
                ),
                Panel(
                    "Collections",
                    "ops",
                    [
                        ask(
                            "sum by (generation) (rate(python_gc_collections_total{%s}"
                            "[$__rate_interval]))",
                            "generation {{generation}}",
                        )
                    ],
                    "A second, all chosen nodes together.",
                ),
                Panel(
                    "Clock step pending",
                    "none",
                    [by_instance("hourwheel_clock_step_pending")],
                    "1 while the wall clock has made a step that is not followed.",
                    is_bad_above=1,
                ),
            ),
        ),
        Row(
            "Life",
            (
                Panel(
                    "Versions",
                    "none",
                    [ask("hourwheel_build_info{%s}")],
                    "What runs where.",
                    kind="table",
                ),
                Panel(
                    "How the last process ended",
                    "none",
                    [ask("hourwheel_last_exit{%s}")],
                    "FIRST_START, STOPPED, KILLED, or a typed reason such as FSYNC_FAILED.",
                    kind="table",
                ),
                Panel(
                    "Uptime",
                    "s",
                    [
                        ask(
                            "max by (instance) (time() - hourwheel_start_timestamp_seconds{%s})",
                            "{{instance}}",
                        )
                    ],
                    "A drop is a restart.",
                ),
            ),
        ),
    ),
)
