"""What a gateway counts is told under the families' names, with bounded labels."""

from hourwheel import errors
from hourwheel.gateway.metrics import FAMILIES, GONE, LIMITS, OTHER, HttpCounts, HttpHealth
from hourwheel.workers.metrics import Durations


def health(
    counts: HttpCounts, *, is_refused: bool = False, is_stopping: bool = False
) -> HttpHealth:
    return HttpHealth(counts.samples("receive"), 3, 700, 2, is_refused, is_stopping)


def test_each_family_has_samples_and_there_are_no_others() -> None:
    samples = health(HttpCounts()).samples()
    assert set(samples) == {family.name for family in FAMILIES}
    labels = {family.name: len(family.labels) for family in FAMILIES}
    assert all(len(one[0]) == labels[name] for name, found in samples.items() for one in found)


def test_requests_are_counted_by_route_and_status() -> None:
    counts = HttpCounts()
    counts.add("publish", "200", 4.0)
    counts.add("publish", "200", 40.0)
    counts.add(OTHER, GONE, 1.0)
    counts.inflight.update({"receive": 2, "publish": 1})
    counts.request_bytes, counts.response_bytes = 500, 70
    samples = health(counts).samples()
    requests = dict(samples["hourwheel_http_requests_total"])
    assert requests == {("publish", "200"): 2, (OTHER, GONE): 1}
    durations = dict(samples["hourwheel_http_request_duration_seconds"])
    published = durations["publish",]
    assert isinstance(published, Durations)
    assert published.sum_s == 0.044
    assert published.buckets()[0] == ("0.005", 1.0)
    assert published.buckets()[-1] == ("+Inf", 2.0)
    assert samples["hourwheel_http_inflight_requests"] == [((), 3)]
    assert samples["hourwheel_http_long_polls"] == [((), 2)]
    assert samples["hourwheel_http_request_bytes_total"] == [((), 500)]
    assert samples["hourwheel_http_response_bytes_total"] == [((), 70)]


def test_limits_of_the_gateway_are_told_apart_from_those_of_nodes() -> None:
    counts = HttpCounts()
    counts.add_refused(errors.Overloaded("full", limit="callers"))
    counts.add_refused(errors.Overloaded("full", limit="of a node"))
    counts.add_refused(errors.InvalidArgument("no such field"))
    samples = counts.samples("receive")
    refused = dict(samples["hourwheel_http_refused_total"])
    assert refused == {(errors.Overloaded.reason,): 2, (errors.InvalidArgument.reason,): 1}
    limited = dict(samples["hourwheel_http_limited_total"])
    assert limited == {(name,): int(name == "callers") for name in LIMITS}


def test_probes_are_told_when_it_stops() -> None:
    running, stopping = health(HttpCounts()), health(HttpCounts(), is_stopping=True)
    assert (running.is_healthy, running.shown()) == (True, {"status": "ok"})
    assert (stopping.is_healthy, stopping.shown()) == (False, {"status": "stopping"})
    refused = health(HttpCounts(), is_refused=True).samples()
    assert refused["hourwheel_http_files_refused"] == [((), 1.0)]
