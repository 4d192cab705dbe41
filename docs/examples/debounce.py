"""Index a document half a minute after its last change, however often it changes before.

    hourwheel worker debounce:app

Of one dedup key one message is pending at most. A later one takes the place of the one that waits,
so the last change counts, and a burst of a thousand is one call of the handler.
"""

from datetime import timedelta

from hourwheel import App, IfPending, Message

app = App(group="search")
TOPIC = "documents.changed"
QUIET = timedelta(seconds=30)
INDEXED: list[str] = []
"""Stands for the search index."""


def change(document: str) -> None:
    """Somebody types."""
    _publish(document, f"last {document}", IfPending.REPLACE)


def look_at(document: str) -> None:
    """The other way round (throttling): the first one counts, and others change nothing.

    So there is one call in half a minute, also for a document that never rests.
    """
    _publish(document, f"first {document}", IfPending.KEEP)


def _publish(document: str, key: str, if_pending: IfPending) -> None:
    body, kind = document.encode(), "text/plain"
    message = Message(body, delay=QUIET, dedup_key=key, if_pending=if_pending, content_type=kind)
    app.producer.publish(TOPIC, message)


@app.handler(TOPIC)
def index(document: str) -> None:
    """Read the document as it is now, and index it."""
    INDEXED.append(document)
