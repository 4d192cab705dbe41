"""Programs beside the nodes: HTTP gateways, webhooks, workers."""

from typing import Final

from helm.monitoring.panels import Dashboard, Panel, Query, Row, ask, by_instance, quantiles


def _rate(metric: str, by: str, also: str = "") -> Query:
    rate = f"rate({metric}{{%s{also}}}[$__rate_interval])"
    return ask(f"sum by ({by}) ({rate})", f"{{{{{by}}}}}")


def _by_subscription(metric: str) -> Query:
    return ask(f"sum by (subscription) ({metric}{{%s}})", "{{subscription}}")


_HTTP: Final = Row(
    "HTTP",
    (
        Panel(
            "Requests by route",
            "ops",
            [_rate("hourwheel_http_requests_total", "route")],
            "By the operation's name in the OpenAPI document.",
            is_stacked=True,
        ),
        Panel(
            "Requests by status",
            "ops",
            [_rate("hourwheel_http_requests_total", "status")],
            "gone: the caller hung up first.",
            is_stacked=True,
        ),
        Panel(
            "p99 by route",
            "s",
            quantiles("hourwheel_http_request_duration_seconds", "route")[1:2],
            "The waiting of long polls (receive) is in it.",
        ),
        Panel(
            "Requests refused",
            "ops",
            [_rate("hourwheel_http_refused_total", "reason")],
            "By typed reason (docs/ERRORS.md).",
            is_stacked=True,
        ),
        Panel(
            "Bounds of the gateway",
            "ops",
            [_rate("hourwheel_http_limited_total", "limit")],
            "What was refused or ended for one of them: docs/LIMITS.md, HTTP.",
        ),
        Panel(
            "Connections and requests",
            "none",
            [
                ask(f"sum(hourwheel_http_{name}{{%s}})", text)
                for name, text in (
                    ("connections", "connections"),
                    ("inflight_requests", "requests"),
                    ("long_polls", "long polls"),
                    ("callers", "callers"),
                )
            ],
            "At this moment, all gateways together.",
        ),
        Panel(
            "Memory for bodies",
            "bytes",
            [by_instance("hourwheel_http_body_bytes")],
            "Key bodies_bytes.",
        ),
        Panel(
            "Bytes",
            "Bps",
            [
                ask(f"sum(rate(hourwheel_http_{name}_bytes_total{{%s}}[$__rate_interval]))", text)
                for name, text in (("request", "in"), ("response", "out"))
            ],
            "Bodies of requests and of answers.",
        ),
    ),
)

_WEBHOOKS: Final = Row(
    "Webhooks",
    (
        Panel(
            "POSTs by subscription",
            "ops",
            [_rate("hourwheel_push_posts_total", "subscription")],
            "Whatever came of them.",
            is_stacked=True,
        ),
        Panel(
            "POSTs that failed",
            "ops",
            [_rate("hourwheel_push_posts_total", "result", ',result!="done"')],
            "By what came of them. Each comes again, or is a dead letter of its group.",
            is_stacked=True,
        ),
        Panel(
            "p99 by subscription",
            "s",
            quantiles("hourwheel_push_post_duration_seconds", "subscription")[1:2],
            "How long a target takes, connection included.",
        ),
        Panel(
            "POSTs under way",
            "none",
            [_by_subscription("hourwheel_push_inflight_posts")],
            "As many as concurrency allows: the target is the bound.",
        ),
        Panel(
            "Connections made",
            "ops",
            [_rate("hourwheel_push_connections_total", "subscription")],
            "Far fewer than POSTs where a target lets them be kept.",
        ),
        Panel(
            "Asked to wait",
            "ops",
            [_rate("hourwheel_push_retry_after_total", "subscription")],
            "Answers with a Retry-After.",
        ),
        Panel(
            "Bodies sent",
            "Bps",
            [_rate("hourwheel_push_sent_bytes_total", "subscription")],
            "Bytes of messages.",
        ),
        Panel(
            "Receiving",
            "none",
            [_by_subscription("hourwheel_push_receiving")],
            "Processes whose polls are answered; 0: the nodes are away, or refuse.",
        ),
        Panel(
            "Subscriptions",
            "none",
            [by_instance("hourwheel_push_subscriptions")],
            "That each process serves: the same for all that have one configuration.",
        ),
        Panel(
            "Configuration refused",
            "none",
            [
                by_instance("hourwheel_http_files_refused"),
                by_instance("hourwheel_push_files_refused"),
            ],
            "1: a new file cannot be used, and the former configuration stays.",
            is_bad_above=1,
        ),
    ),
)

_WORKERS: Final = Row(
    "Workers",
    (
        Panel(
            "Messages by handler",
            "ops",
            [_rate("hourwheel_worker_messages_total", "handler")],
            "Done with, whatever came of them.",
            is_stacked=True,
        ),
        Panel(
            "Messages by result",
            "ops",
            [_rate("hourwheel_worker_messages_total", "result")],
            "done, retry, failed, rejected.",
            is_stacked=True,
        ),
        Panel(
            "In work",
            "none",
            [ask("sum by (handler) (hourwheel_worker_running_messages{%s})", "{{handler}}")],
            "As many as concurrency and processes allow: handlers are the bound.",
        ),
        Panel(
            "p99 by handler",
            "s",
            quantiles("hourwheel_worker_message_duration_seconds", "handler")[1:2],
            "How long a message is in work.",
        ),
        Panel(
            "Leases lost",
            "ops",
            [_rate("hourwheel_worker_lost_leases_total", "handler")],
            "Nodes were away for longer than a lease, or a worker stood still: some come twice.",
        ),
        Panel(
            "Handlers that receive",
            "none",
            [ask("sum by (handler) (hourwheel_worker_receiving{%s})", "{{handler}}")],
            "Workers whose polls are answered.",
        ),
        Panel(
            "Children",
            "none",
            [by_instance("hourwheel_worker_processes")],
            "Processes that take messages.",
        ),
        Panel(
            "Children replaced",
            "ops",
            [by_instance("hourwheel_worker_process_restarts_total", "rate")],
            "Handlers that crash, or hang past their time limit.",
        ),
    ),
)

PROGRAMS: Final = Dashboard(
    "programs",
    "HTTP, webhooks, workers",
    "What runs beside the nodes: gateways, webhooks, workers.",
    (_HTTP, _WEBHOOKS, _WORKERS),
    is_of_programs=True,
)
