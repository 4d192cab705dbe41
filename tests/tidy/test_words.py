"""The words that names and pages may not use, and the field's words that stand for them.

Names are what an engineer of another broker greps for: docs/GLOSSARY.md has each word once. A name
of the protocol or of the public API stays as it was published. Pages and the prose in modules say
who does what.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import Final

import pytest

from tests.tidy import log_events, tree

WORDS: Final = {
    "absolve": "clear",
    "absolved": "cleared",
    "asked": "requested",
    "bearings": "restore",
    "beat": "heartbeat",
    "beats": "heartbeats",
    "buried": "dead_lettered; reaped, of a process",
    "bury": "dead_letter",
    "forsaken": "lease_lost",
    "giver": "sender",
    "goodbye": "close",
    "greet": "on_connected",
    "greeting": "hello",
    "intake": "publish_service",
    "judge": "check, deduplicate, on_failure",
    "judged": "checked",
    "mono": "monotonic",
    "promise": "lease_grant",
    "promised": "granted",
    "reign": "epoch, mastership",
    "reigns": "epochs, masterships",
    "resign": "step_down",
    "resignation": "step_down_request",
    "retire": "close, step_down",
    "stretch": "range, span",
    "stretches": "ranges, spans",
    "taker": "receiver",
    "told": "reported, shown",
    "unasked": "housekeeping",
    "verdict": "result, of a record; answer, of a check",
    "void": "rejected",
}
PHRASES: Final = {
    "keep_house": "housekeeping",
    "last_word": "last_heartbeat",
    "pass_over": "filter",
    "passed_over": "filtered",
    "take_bearings": "restore_append_state",
}

PUBLISHED: Final = {
    "spark_jobs/audit/facts/result.py": {"Verdict", "verdict", "void"},
    "spark_jobs/audit/delivery.py": {"void"},
    "spark_jobs/audit/report_html.py": {"verdict", "void"},
    "spark_jobs/audit/words.py": {"Verdict", "verdict"},
    "spark_jobs/commands/audit.py": {"Verdict", "verdict", "void"},
}
"""Keys of the audit's JSON report, by the files that name them. What an audit ends with is its
verdict, also for those who read the report."""

EVENT_WORDS: Final = {
    "begun": "started",
    "hand": "transfer",
    "noted": "recorded",
}
"""What the keys of log events may not use besides: operators search for them."""
OLD_STYLE: Final = re.compile(r"\b(?:told|nobody|whoever|whom)\b", re.IGNORECASE)
"""What no module says. In their place stands the subject: the node answers, no group needs it, a
caller may."""
PAGE_WORDS: Final = re.compile(
    r"\b(?:told|nobody|whoever|whom|unasked|reigns?|judged?|pass(?:ed|es)? over)\b", re.IGNORECASE
)
CODE: Final = re.compile(r"^( *)```.*?^\1```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
"""On a page: what programs say and are."""
HISTORY: Final = ("CHANGELOG.md", "docs/DECISIONS.md", "docs/decisions/", "docs/FILES.md")
"""Pages that stay as they were written, and the one that is made of docstrings."""


def words(name: str) -> list[str]:
    """The words of a name, in small letters."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().strip("_").split("_")


def find_wrong(name: str) -> str | None:
    """What to say in place of a word of `name`, or None where each is in order."""
    parts = words(name)
    joined = f"_{'_'.join(parts)}_"
    for phrase, better in PHRASES.items():
        if f"_{phrase}_" in joined:
            return better
    return next((WORDS[part] for part in parts if part in WORDS), None)


def names_in(text: str) -> Iterator[tuple[int, str]]:
    """(line, name) of each name in a module. A type of numpy is no name of ours."""
    before = ["", ""]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and before != ["np", "."]:
            yield token.start[0], token.string
        before = [before[1], token.string]


def published() -> set[str]:
    """Each name in generated code: messages, fields and values of the protocols."""
    stubs = [path for path in tree.files() if path.startswith(tree.WIRE) and path.endswith(".pyi")]
    assert stubs
    return {name for path in stubs for _, name in names_in(tree.text(path))}


def test_names_use_the_words_of_the_field() -> None:
    wire = published()
    wrong = [
        f"{path}:{line}: {name}: say {better}"
        for path in tree.modules()
        for line, name in names_in(tree.text(path))
        if name not in wire and name not in PUBLISHED.get(path, ())
        if (better := find_wrong(name)) is not None
    ]
    assert wrong == []


def test_log_events_use_the_words_of_the_field() -> None:
    found = [
        (call.place, str(call.event.value), call.keys)
        for call in log_events.calls()
        if isinstance(call.event, ast.Constant)
    ]
    assert len(found) > 100
    wrong = {
        f"{place}: {name}"
        for place, event, keys in found
        for name in (event, *keys)
        if find_wrong(name) is not None
    }
    wrong |= {
        f"{place}: {event}: say {EVENT_WORDS[word]}"
        for place, event, _ in found
        for word in words(event)
        if word in EVENT_WORDS
    }
    assert sorted(wrong) == []


def old_words_on(page: str) -> list[str]:
    """Words of `PAGE_WORDS` in the prose of a page, with their lines."""
    prose = CODE.sub(lambda found: "\n" * found[0].count("\n"), page)
    return [
        f"{number}: {found.group()}"
        for number, line in enumerate(prose.split("\n"), 1)
        for found in PAGE_WORDS.finditer(line)
    ]


def test_pages_say_who_does_what() -> None:
    pages = [path for path in tree.files_named(".md") if not path.startswith(HISTORY)]
    assert {"README.md", "docs/METRICS.md", "docs/guides/members.md"} <= set(pages)
    assert [f"{page}:{one}" for page in pages for one in old_words_on(tree.text(page))] == []


def test_prose_of_programs_is_left_alone() -> None:
    page = "Nobody\n\n   ```yaml\n   receiver: nobody\n   ```\n`nobody listens`, told\n"
    assert old_words_on(page) == ["1: Nobody", "6: told"]


def test_modules_say_who_does_what() -> None:
    assert tree.modules()
    wrong = [
        f"{path}:{number}: {found.group()}"
        for path in tree.modules()
        for number, line in enumerate(tree.text(path).split("\n"), 1)
        for found in OLD_STYLE.finditer(line)
    ]
    assert wrong == [], "name the subject: the node answers, no group needs it"


@pytest.mark.parametrize(
    ("name", "is_wrong"),
    [
        ("_begin_reign", True),
        ("ReignStats", True),
        ("MONO_MS", True),
        ("is_passed_over", True),
        ("passed_out_over", False),
        ("heartbeat_ms", False),
        ("foreign", False),
        ("avoid", False),
    ],
)
def test_word_is_found_when_it_stands_by_itself(name: str, *, is_wrong: bool) -> None:
    assert (find_wrong(name) is not None) == is_wrong
