"""Names that docstrings and comments mention exist: a rename reaches them, too."""

import io
import re
import tokenize
from collections.abc import Iterator
from typing import Final

from tests.tidy import tree

MENTION: Final = re.compile(r"`([A-Za-z_][\w.]*[A-Za-z_0-9])(?:\(\))?`")
WORD: Final = re.compile(r"[A-Za-z_]\w*")
PROSE: Final = re.compile(r'\w*"""')
OF_OTHERS: Final = {
    "hourwheel/formats/record_batch.py": {"DefaultRecordBatch"},  # Kafka's
    "hourwheel/integrations/kombu.py": {"broker_connection_timeout", "broker_use_ssl"},  # Celery's
    "hourwheel/otel.py": {"tracestate", "baggage"},  # properties, by W3C Trace Context
    "spark_jobs/runtime/paths.py": {"pyarrow.NativeFile"},
}
"""Names that are of other programs, by the modules that mention them."""


def tokens_of(path: str) -> Iterator[tuple[int, str, bool]]:
    """(line, text, whether it is prose) of the names, texts and comments of a module."""
    for token in tokenize.generate_tokens(io.StringIO(tree.text(path)).readline):
        if token.type in {tokenize.NAME, tokenize.STRING, tokenize.COMMENT}:
            is_prose = token.type == tokenize.COMMENT or PROSE.match(token.string) is not None
            yield token.start[0], token.string, is_prose and token.type != tokenize.NAME


def test_names_mentioned_in_prose_exist() -> None:
    known = {word for path in tree.files() for word in WORD.findall(path)}
    mentions: list[tuple[str, int, str]] = []
    for path in tree.files():
        if not path.endswith((".py", ".pyi")):
            continue
        is_checked = path.startswith(tree.rooms()) and not path.startswith(("tests/", *tree.WIRE))
        for line, text, is_prose in tokens_of(path):
            if not is_prose:
                known.update(WORD.findall(text))
            elif is_checked:
                first = text[: text.find("`")].count("\n")
                mentions += [(path, line + first, one) for one in MENTION.findall(text)]
    assert len(mentions) > 2_000
    missing = [
        f"{path}:{line}: {name}"
        for path, line, name in mentions
        if name.rpartition(".")[2] not in known and name not in OF_OTHERS.get(path, ())
    ]
    assert missing == []
