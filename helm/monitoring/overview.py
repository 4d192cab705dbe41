"""Is all well? The objective, the master, what waits."""

from typing import Final

from helm.monitoring.panels import Dashboard, Panel, Row, ask, quantiles

_LATE = (
    '1 - sum(rate(hourwheel_delivery_lateness_seconds_bucket{%s,le="0.1"}[$__rate_interval]))'
    " / (sum(rate(hourwheel_delivery_lateness_seconds_count{%s}[$__rate_interval])) > 0)"
)


def _stat(title: str, unit: str, expr: str, text: str, bad: float | None = None) -> Panel:
    return Panel(title, unit, [ask(expr)], text, kind="stat", width=4, is_bad_above=bad)


OVERVIEW: Final = Dashboard(
    "overview",
    "Overview",
    "Is all well? The objective: 999 of 1,000 messages are visible within 100 ms of their time.",
    (
        Row(
            "Now",
            (
                _stat("Nodes up", "none", "count(hourwheel_build_info{%s})", "Nodes that answer."),
                _stat(
                    "Masters",
                    "none",
                    "sum(hourwheel_is_master{%s})",
                    "1 for each cluster, but for a moment while it changes.",
                ),
                _stat(
                    "Smallest in-sync set",
                    "none",
                    "min(hourwheel_in_sync_replicas{%s})",
                    "As many as nodes, when all is well.",
                ),
                _stat(
                    "Pending messages",
                    "short",
                    "sum(max by (namespace, job, shard) (hourwheel_wheel_pending_messages{%s}))",
                    "Scheduled, neither released nor cancelled.",
                ),
                _stat(
                    "Overdue",
                    "s",
                    "max(hourwheel_wheel_dequeue_lag_seconds{%s})",
                    "Age of the oldest message that is due and not released.",
                    bad=1.0,
                ),
                _stat(
                    "Early deliveries",
                    "none",
                    "sum(hourwheel_early_deliveries_total{%s})",
                    "Since the nodes started. Must be 0.",
                    bad=1.0,
                ),
            ),
        ),
        Row(
            "The objective",
            (
                Panel(
                    "Late messages",
                    "percentunit",
                    [ask(_LATE, "more than 100 ms late")],
                    "Share of messages that became visible more than 100 ms late. Above the line"
                    " the objective is missed.",
                    is_bad_above=0.001,
                ),
                Panel(
                    "Lateness",
                    "s",
                    quantiles("hourwheel_delivery_lateness_seconds"),
                    "From the due time until consumers could see a message.",
                ),
                Panel(
                    "Burn rate of the error budget",
                    "none",
                    [
                        ask("max(hourwheel:late_messages:ratio_rate1h) / 0.001", "over an hour"),
                        ask("max(hourwheel:late_messages:ratio_rate6h) / 0.001", "over six hours"),
                    ],
                    "1: the budget of 30 days lasts 30 days. Recorded by the rules of alerts.yaml.",
                    is_bad_above=14.4,
                ),
            ),
        ),
        Row(
            "Traffic",
            (
                Panel(
                    "Messages",
                    "ops",
                    [
                        ask(f"sum(rate({metric}{{%s}}[$__rate_interval]))", legend)
                        for metric, legend in (
                            ("hourwheel_published_messages_total", "published"),
                            ("hourwheel_delivered_messages_total", "delivered"),
                            ("hourwheel_acknowledged_messages_total", "acknowledged"),
                            ("hourwheel_cancelled_messages_total", "cancelled"),
                        )
                    ],
                    "A second, all nodes together.",
                ),
                Panel(
                    "Waiting for consumers",
                    "short",
                    [
                        ask("max(hourwheel_consumer_lag_all_messages{%s})", "to do"),
                        ask("max(hourwheel_consumer_leased_all_messages{%s})", "of these, leased"),
                    ],
                    "Released messages that groups have still to do.",
                ),
                Panel(
                    "Calls that fail",
                    "percentunit",
                    [
                        ask(
                            'sum(rate(hourwheel_grpc_server_handled_total{%s,code!="OK"}'
                            "[$__rate_interval]))"
                            " / sum(rate(hourwheel_grpc_server_handled_total{%s}"
                            "[$__rate_interval])) or vector(0)",
                            "not OK",
                        )
                    ],
                    "Clients that are sent on to the master count as well.",
                ),
            ),
        ),
    ),
)
