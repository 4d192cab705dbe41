import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np

from spark_jobs.audit import report_html
from spark_jobs.audit.facts.findings import CheckOutcome, Finding
from spark_jobs.audit.facts.result import AuditResult, Lateness, Ledger, PendingByHour
from tests.support.audit_results import START_MS, bad_result, clean_result

REJECTED = {"meta", "line", "rect", "polyline", "polygon"}


class Balanced(HTMLParser):
    """Remembers what is open, and all addresses that a browser would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attrs if name in {"src", "href"}]
        if tag not in REJECTED:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in REJECTED:
            assert self.open.pop() == tag


def page(result: AuditResult) -> str:
    text = report_html.render(result, made_ms=START_MS, folder="/out/findings.parquet")
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert parser.loads == []
    return text


def test_a_clean_page_says_so_and_needs_nothing_from_elsewhere() -> None:
    text = page(clean_result())
    assert "<strong>Clean</strong>" in text
    assert "<h2>Findings</h2><p>None.</p>" in text
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert "url(" not in text
    assert "http" not in re.sub(r'http-equiv="', "", text)
    assert text.count("<svg ") == 3
    assert "prefers-color-scheme: dark" in text


def test_findings_come_with_their_places() -> None:
    text = page(bad_result())
    assert "<strong>Faulty</strong>" in text
    assert "shard-0/queues/00000100/000000000000.cq" in text
    assert "offset 65536" in text
    assert "a released message has no entry in its queue" in text
    assert "its checkpoint is damaged" in text
    assert "orders &lt;b&gt;&amp;" in text
    assert "orders <b>" not in text


def test_what_could_not_be_audited_is_told() -> None:
    result = replace(
        clean_result(), checks=(CheckOutcome("wheel", 0, "node-1", "file-unread", "gone"),)
    )
    text = page(result)
    assert "<strong>Incomplete</strong>" in text
    assert "Not checked: wheel of shard 0 of node-1: gone (file-unread)." in text
    assert "0 of 1 in full" in text


def test_of_many_findings_the_rest_is_in_the_file() -> None:
    many = tuple(Finding("error", "queue-missing", 0, "n", sequence=n) for n in range(1_000))
    result = replace(
        clean_result(), findings=many, finding_counts={("error", "queue-missing", 0): 5_000}
    )
    text = page(result)
    assert "200 of 5,000 are shown" in text
    assert "/out/findings.parquet" in text


def test_columns_that_nobody_fills_take_no_room() -> None:
    found = (Finding("error", "checkpoint", 0, "n", file="shard-0/checkpoint", detail="wrong"),)
    text = page(replace(clean_result(), findings=found, finding_counts={found[0][:3]: 1}))
    heads = re.findall(r"<h3>One by one</h3>.*?<thead><tr>(.*?)</tr>", text)[0]
    assert re.findall(">([a-z]+)</th>", heads) == ["severity", "check", "node"]
    assert '<td class="t" colspan="3">shard-0/checkpoint: wrong</td>' in text


def test_what_follows_from_a_cause_is_folded_away() -> None:
    cause = Finding("error", "message-changed", 0, "", offset=64, sequence=7)
    follows = Finding("error", "checkpoint", 0, "n", cause="message-changed of sequence 7")
    counts = {("error", "checkpoint", 0): 1, ("error", "message-changed", 0): 1}
    text = page(replace(clean_result(), findings=(cause, follows), finding_counts=counts))
    folded = text.index("<summary>1 that follow from these</summary>")
    assert text.index("<td>message-changed</td>") < text.index("<td>checkpoint</td>"), "by rank"
    assert text.rindex("<td>message-changed</td>") < folded < text.rindex("<td>checkpoint</td>")


def test_findings_for_information_are_folded_away() -> None:
    found = (Finding("error", "queue-missing", 0, "n"), Finding("info", "dead-letter", 0, "n"))
    counts = {("error", "queue-missing", 0): 1, ("info", "dead-letter", 0): 1}
    text = page(replace(clean_result(), findings=found, finding_counts=counts))
    folded = text.index("<summary>1 for information</summary>")
    assert text.rindex("<td>queue-missing</td>") < folded < text.rindex("<td>dead-letter</td>")


def test_a_log_without_messages_has_a_page() -> None:
    none = np.zeros(0, np.int64)
    (shard,) = clean_result().shards
    empty = replace(
        shard,
        first_store_ms=-1,
        last_store_ms=-1,
        groups=(),
        lateness=Lateness(none, none, none, none),
        ledger=Ledger(1_000, none, none, none, none, none),
        pending=PendingByHour(none, none),
    )
    text = page(replace(clean_result(), shards=(empty,), cluster=""))
    assert "No message went through the wheel" in text
    assert "Nothing is pending" in text
    assert text.count("<svg ") == 0
    assert "Cluster unknown" in text
    assert "Incomplete" in page(replace(clean_result(), shards=()))


def test_a_wide_table_stays_on_the_page_and_its_details_wrap() -> None:
    text = page(bad_result())
    assert "td.t { white-space: normal; min-width: 12rem; overflow-wrap: anywhere; }" in text
    assert ".wide { overflow-x: auto; }" in text
    before = [one.rpartition("<div")[2] for one in text.split("<table")[:-1]]
    assert before
    assert all(' class="wide"' in one for one in before)
