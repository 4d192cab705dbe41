"""What subscriptions count is told under the families' names, by their own names."""

import pytest

from hourwheel.webhooks.metrics import FAMILIES, PushCounts, PushHealth, SubscriptionHealth
from hourwheel.webhooks.results import PostResult, result_of
from hourwheel.workers.metrics import Durations


def one(name: str, counts: PushCounts, *, is_receiving: bool = True) -> SubscriptionHealth:
    return SubscriptionHealth(name, is_receiving, 2, 5, counts)


def test_each_family_has_samples_and_there_are_no_others() -> None:
    samples = PushHealth([one("shop", PushCounts())], is_refused=False).samples()
    assert set(samples) == {family.name for family in FAMILIES}
    labels = {family.name: len(family.labels) for family in FAMILIES}
    assert all(len(at) == labels[name] for name, found in samples.items() for at, _ in found)
    assert all(found for found in samples.values())


def test_subscriptions_are_told_apart() -> None:
    shop, mail = PushCounts(), PushCounts()
    shop.add(PostResult.DONE, 30.0, 200)
    shop.add(PostResult.TIMEOUT, 3_000.0, 100)
    shop.dial_count, mail.retry_after_count = 4, 1
    subscriptions = [one("shop", shop), one("mail", mail, is_receiving=False)]
    health = PushHealth(subscriptions, is_refused=True)
    samples = {name: dict(found) for name, found in health.samples().items()}
    posts = samples["hourwheel_push_posts_total"]
    assert {place for place, count in posts.items() if count} == {
        ("shop", "done"),
        ("shop", "timeout"),
    }
    assert samples["hourwheel_push_connections_total"] == {("shop",): 9, ("mail",): 5}
    assert samples["hourwheel_push_sent_bytes_total"] == {("shop",): 300, ("mail",): 0}
    assert samples["hourwheel_push_retry_after_total"] == {("shop",): 0, ("mail",): 1}
    assert samples["hourwheel_push_receiving"] == {("shop",): 1.0, ("mail",): 0.0}
    assert samples["hourwheel_push_inflight_posts"] == {("shop",): 2, ("mail",): 2}
    assert samples["hourwheel_push_files_refused"] == {(): 1.0}
    durations = samples["hourwheel_push_post_duration_seconds"]["shop",]
    assert isinstance(durations, Durations)
    assert durations.sum_s == pytest.approx(3.03)
    assert not health.is_healthy
    assert health.shown() == {"receiving": {"shop": True, "mail": False}}
    assert PushHealth(subscriptions[:1], is_refused=True).is_healthy


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (200, PostResult.DONE),
        (299, PostResult.DONE),
        (300, PostResult.REDIRECT),
        (400, PostResult.REFUSED),
        (499, PostResult.REFUSED),
        (500, PostResult.FAILED),
        (199, PostResult.FAILED),
        (999, PostResult.FAILED),
    ],
)
def test_a_status_has_one_result(status: int, result: PostResult) -> None:
    assert result_of(status) is result
