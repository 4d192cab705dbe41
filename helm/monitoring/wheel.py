"""What falls due when, whether it comes out in time, and who takes it."""

from typing import Final

from helm.monitoring.panels import Dashboard, Panel, Row, ask, by_instance

_HEAT = "sum by (le) (rate({}_bucket{{%s}}[$__rate_interval]))"
_DUE_HEAT = (
    'label_replace(max by (within_seconds) (hourwheel_wheel_due_messages{%s}), "le", "$1",'
    ' "within_seconds", "(.*)")'
)


DELAY_WHEEL: Final = Dashboard(
    "delay-wheel",
    "Delay wheel",
    "What falls due when, and whether it comes out in time.",
    (
        Row(
            "What is coming",
            (
                Panel(
                    "Due within ... seconds",
                    "short",
                    [ask(_DUE_HEAT)],
                    "Pending messages by how far away they are due. A band that moves down is a"
                    " peak that comes nearer.",
                    kind="heatmap",
                    width=16,
                ),
                Panel(
                    "Due within",
                    "short",
                    [
                        ask(
                            f'max(hourwheel_wheel_due_messages{{%s,within_seconds="{seconds}"}})',
                            legend,
                        )
                        for seconds, legend in (
                            ("0", "overdue"),
                            ("60", "a minute"),
                            ("3600", "an hour"),
                            ("86400", "a day"),
                            ("2592000", "30 days"),
                            ("+Inf", "ever"),
                        )
                    ],
                    "Cancelled messages are counted until they would have been due.",
                    kind="bargauge",
                ),
            ),
        ),
        Row(
            "In and out",
            (
                Panel(
                    "Pending",
                    "short",
                    [
                        by_instance("hourwheel_wheel_pending_messages"),
                        ask("max(hourwheel_wheel_overdue_messages{%s})", "overdue"),
                    ],
                    "Scheduled, neither released nor cancelled. Nodes in sync tell the same.",
                ),
                Panel(
                    "Enqueue lag",
                    "s",
                    [by_instance("hourwheel_wheel_enqueue_lag_seconds")],
                    "How long the oldest accepted batch waits to be committed and applied.",
                    is_bad_above=1.0,
                ),
                Panel(
                    "Dequeue lag",
                    "s",
                    [by_instance("hourwheel_wheel_dequeue_lag_seconds")],
                    "Age of the oldest message that is due and not released.",
                    is_bad_above=1.0,
                ),
                Panel(
                    "Lateness",
                    "short",
                    [ask(_HEAT.format("hourwheel_delivery_lateness_seconds"))],
                    "Releases a second, by how late they were.",
                    kind="heatmap",
                    width=16,
                ),
                Panel(
                    "Released, redelivered, cancelled",
                    "ops",
                    [
                        ask(
                            "sum(rate(hourwheel_released_messages{%s}[$__rate_interval]))",
                            "released",
                        ),
                        ask(
                            "sum(rate(hourwheel_redelivered_messages_total{%s}[$__rate_interval]))",
                            "scheduled again",
                        ),
                        ask(
                            "sum(rate(hourwheel_cancelled_messages_total{%s}[$__rate_interval]))",
                            "cancelled",
                        ),
                    ],
                    "A second, all nodes together.",
                ),
            ),
        ),
        Row(
            "The wheel itself",
            (
                Panel(
                    "Runs",
                    "none",
                    [by_instance("hourwheel_wheel_runs")],
                    "Files of the wheel; merges keep them few.",
                ),
                Panel(
                    "Memory",
                    "bytes",
                    [by_instance("hourwheel_wheel_near_bytes")],
                    "For what is due next; it does not grow with what is pending.",
                ),
                Panel(
                    "Not in a run yet",
                    "short",
                    [by_instance("hourwheel_wheel_memtable_messages")],
                    "Falls to nothing with each flush.",
                ),
                Panel(
                    "Flushes, merges, cascades",
                    "none",
                    [
                        ask(f"sum(increase({metric}{{%s}}[$__rate_interval]))", legend)
                        for metric, legend in (
                            ("hourwheel_wheel_flushes_total", "flushes"),
                            ("hourwheel_wheel_merges_total", "merges"),
                            ("hourwheel_wheel_cascades_total", "cascades"),
                        )
                    ],
                    "Background jobs.",
                ),
                Panel(
                    "Recovery",
                    "s",
                    [by_instance("hourwheel_wheel_recovery_seconds")],
                    "How long opening took at the last start.",
                ),
                Panel(
                    "Next due",
                    "dateTimeFromNow",
                    [
                        ask(
                            "min(hourwheel_wheel_next_due_timestamp_seconds{%s} > 0) * 1000"
                            " or vector(0)"
                        )
                    ],
                    "When the earliest pending message is due.",
                    kind="stat",
                ),
            ),
        ),
    ),
)


CONSUMERS: Final = Dashboard(
    "consumers",
    "Consumer groups",
    "Who has messages to do, and who does them. Those most behind have a line each"
    " (key telemetry.lag_series).",
    (
        Row(
            "Lag",
            (
                Panel(
                    "To do, those most behind",
                    "short",
                    [
                        ask(
                            "topk(10, max by (group, topic) (hourwheel_consumer_lag_messages{%s}))",
                            "{{group}} / {{topic}}",
                        )
                    ],
                    "Released messages that a group has neither acknowledged nor given up.",
                    width=16,
                ),
                Panel(
                    "All groups together",
                    "short",
                    [
                        ask("max(hourwheel_consumer_lag_all_messages{%s})", "to do"),
                        ask("max(hourwheel_consumer_leased_all_messages{%s})", "leased"),
                        ask("max(hourwheel_consumer_lag_omitted_series{%s})", "without a line"),
                    ],
                    "The sums, and how many groups and topics have no line of their own.",
                ),
                Panel(
                    "Oldest to do",
                    "s",
                    [
                        ask(
                            "topk(10, max by (group, topic) (hourwheel_consumer_lag_seconds{%s}))",
                            "{{group}} / {{topic}}",
                        ),
                        ask("max(hourwheel_consumer_lag_all_seconds{%s})", "all groups"),
                    ],
                    "How long ago the oldest message that a group has to do could be received.",
                    width=24,
                ),
                Panel(
                    "Leased",
                    "short",
                    [
                        ask(
                            "topk(10, max by (group, topic)"
                            " (hourwheel_consumer_leased_messages{%s}))",
                            "{{group}} / {{topic}}",
                        )
                    ],
                    "Of what is to do, what consumers have now.",
                    width=16,
                ),
                Panel(
                    "Stalled",
                    "none",
                    [
                        ask(
                            "count(max by (group, topic) (hourwheel_consumer_lag_messages{%s}) > 0"
                            " and max by (group, topic) (hourwheel_consumer_leased_messages{%s})"
                            " == 0) or vector(0)",
                            "groups and topics",
                        )
                    ],
                    "They have something to do, and nothing is leased.",
                ),
            ),
        ),
        Row(
            "Delivery",
            (
                Panel(
                    "Delivered, acknowledged",
                    "ops",
                    [
                        ask(
                            "sum(rate(hourwheel_delivered_messages_total{%s}[$__rate_interval]))",
                            "delivered",
                        ),
                        ask(
                            "sum(rate(hourwheel_acknowledged_messages_total{%s}[$__rate_interval]))",
                            "acknowledged",
                        ),
                    ],
                    "A second, all groups together.",
                ),
                Panel(
                    "Again",
                    "ops",
                    [
                        ask(
                            "sum(rate(hourwheel_redelivered_messages_total{%s}[$__rate_interval]))",
                            "scheduled again",
                        ),
                        ask(
                            "sum(rate(hourwheel_lease_expirations_total{%s}[$__rate_interval]))",
                            "leases that ran out",
                        ),
                    ],
                    "Given back, or not acknowledged in time.",
                ),
                Panel(
                    "Dead letters and expired messages",
                    "short",
                    [
                        ask(
                            "sum(increase(hourwheel_dead_lettered_messages_total{%s}"
                            "[$__rate_interval]))",
                            "attempts used up",
                        ),
                        ask(
                            "sum(increase(hourwheel_expired_messages_total{%s}[$__rate_interval]))",
                            "expired",
                        ),
                    ],
                    "Dead letters wait in the group's topic %DLQ%<group>, and what expired, too,"
                    " where the group keeps it.",
                ),
            ),
        ),
    ),
)
