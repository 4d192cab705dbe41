from dataclasses import replace

from spark_jobs.audit.facts.findings import CheckOutcome
from spark_jobs.audit.facts.result import AuditResult
from spark_jobs.audit.words import left_out_text, sentences
from tests.support.audit_results import bad_result, clean_result


def said(result: AuditResult) -> str:
    return " ".join(sentences(result))


def test_clean_audit_says_until_when_how_late_and_who_agrees() -> None:
    text = said(replace(clean_result(), checks=()))
    assert text.startswith("Every message that was accepted up to ")
    assert "is released once, cancelled, or pending." in text
    assert "All were on time: within 2 min of the due time, the latest by 80.0 s or less." in text
    assert "The 3 replicas agree, as far as each goes: node-3 by 4,096 bytes behind." in text
    assert "Not checked" not in text


def test_replicas_agree_only_where_there_are_several() -> None:
    (shard,) = clean_result().shards
    alone = replace(clean_result(), shards=(replace(shard, replicas=shard.replicas[:1]),))
    assert "agree" not in said(alone)
    assert "One replica was looked at: nothing is said of any other." in said(alone)
    empty = shard.replicas[1]._replace(log_bytes=0)
    two = replace(clean_result(), shards=(replace(shard, replicas=(shard.replicas[0], empty)),))
    assert "agree" not in said(two), "the other one has no log"
    both = replace(shard, shard=1, replicas=shard.replicas[:2])
    mixed = replace(alone, shards=(*alone.shards, both))
    assert "Replicas agree, where a shard has several" in said(mixed)


def test_replicas_that_differ_do_not_agree() -> None:
    counts = {("error", "replica-diverges", 0): 1}
    assert "agree" not in said(replace(clean_result(), finding_counts=counts))


def test_faulty_audit_claims_nothing_but_counts() -> None:
    text = said(bad_result())
    assert "2 errors were found" in text
    assert "on time" not in text
    assert "agree" not in text
    assert "wheel of shard 0 of node-3: its checkpoint is damaged (file-unread)" in text


def test_what_was_left_out_is_named_also_when_it_was_accepted() -> None:
    one = CheckOutcome("groups", 0, "", "log-trimmed", "the log does not begin at 0")
    left = replace(clean_result(), checks=(one,))
    text = "groups of shard 0: the log does not begin at 0 (log-trimmed)"
    assert left_out_text(one) == text
    assert f"Not checked: {text}." in said(left)
    assert "not everything could be" in said(left)
    assert "on time" not in said(left)
    accepted = replace(left, accepted=("log-trimmed",))
    assert f"Not checked, and accepted: {text}." in said(accepted)
    assert "Every message" in said(accepted)


def test_bounds_are_said_of_clean_audits() -> None:
    one = CheckOutcome("wheel", 0, "node-2", "checkpoint-behind", "up to offset 7")
    text = said(replace(clean_result(), checks=(one,)))
    assert "Checked as far as it goes: wheel of shard 0 of node-2: up to offset 7" in text


def test_without_any_shard_nothing_was_checked() -> None:
    text = said(replace(clean_result(), shards=()))
    assert "There was no log to look at." in text
    assert "Every message" not in text
