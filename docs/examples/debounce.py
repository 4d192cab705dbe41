"""Index a document half a minute after its last change, however often it changes before.

    hourwheel worker debounce:app

Of one dedup key one message is pending at most. A later one takes the place of the one that waits,
so the last change counts, and a burst of a thousand is one call of the handler.
"""

from hourwheel import App, IfPending

app = App(group="search")
TOPIC = "documents.changed"
QUIET = "30s"
INDEXED: list[str] = []
"""Stands for the search index."""


def change(document: str) -> None:
    """Somebody types."""
    key = f"last {document}"
    app.publish(TOPIC, document, in_=QUIET, dedup_key=key, if_pending=IfPending.REPLACE)


def look_at(document: str) -> None:
    """The other way round (throttling): the first one counts, and others change nothing.

    So there is one call in half a minute, also for a document that never rests.
    """
    key = f"first {document}"
    app.publish(TOPIC, document, in_=QUIET, dedup_key=key, if_pending=IfPending.KEEP)


@app.handler(TOPIC)
def index(document: str) -> None:
    """Read the document as it is now, and index it."""
    INDEXED.append(document)
