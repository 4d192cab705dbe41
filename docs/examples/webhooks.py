"""Deliver webhooks, and try again for a day while the other side is down.

    hourwheel groups put webhooks --attempts 16
    hourwheel worker webhooks:app --processes 2

The delays are the program's: `Retry` says when. What the other side refuses for good is a dead
letter at once, and `hourwheel dead list webhooks` shows why; `dead redrive` sends it again.
"""

import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus

from hourwheel import App, MessageContext, Reject, Retry

app = App(group="webhooks")
DELAYS = (
    timedelta(seconds=10),
    timedelta(minutes=1),
    timedelta(minutes=10),
    timedelta(hours=1),
    timedelta(hours=6),
    timedelta(hours=16),
)
TIMEOUT_S = 10.0
TRY_AGAIN = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}


@dataclass
class Webhook:
    """What is to be told to whom. The URL is the operator's, never a stranger's."""

    url: str
    body: str


def send(hook: Webhook, message_id: str) -> int:
    """POST it; returns the status. The id lets the other side know what it has had before."""
    headers = {"Content-Type": "application/json", "Webhook-Id": message_id}
    request = urllib.request.Request(hook.url, hook.body.encode(), headers)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return HTTPStatus.SERVICE_UNAVAILABLE


@app.handler("webhooks", concurrency=50)
def deliver(hook: Webhook, context: MessageContext) -> None:
    """One try."""
    status = send(hook, context.message_id)
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return
    if status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in TRY_AGAIN:
        raise Reject(f"{hook.url} answers {status}")
    if context.attempt > len(DELAYS):
        raise Reject(f"{hook.url} answers {status}, for a day")
    raise Retry(f"{hook.url} answers {status}", delay=DELAYS[context.attempt - 1])
