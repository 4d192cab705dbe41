"""Who may ask the console."""

from http import HTTPStatus

import pytest

from node.console.gate import TOKEN_HEADER, Gate, host_of
from node.console.http import Request

GATE = Gate(frozenset({"console.example.org"}), "the-token")
HOST = {"host": "127.0.0.1:7402"}
CHANGE = {
    **HOST,
    "origin": "http://127.0.0.1:7402",
    "content-type": "application/json",
    TOKEN_HEADER: "the-token",
}


def refused(method: str = "GET", **headers: str | None) -> tuple[int, str] | None:
    """Status and reason of the refusal; headers by name with "_" for "-", None to leave one out."""
    found = dict(HOST if method in {"GET", "HEAD"} else CHANGE)
    for name, value in headers.items():
        key = name.replace("_", "-")
        found.pop(key, None)
        if value is not None:
            found[key] = value
    refusal = GATE.check(Request(method, "/api/cluster", found))
    return None if refusal is None else (refusal.status.value, refusal.reason)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.0.0.1:7402", "localhost:9", "LOCALHOST", "localhost.", "[::1]:7402"),
        *("10.1.2.3:80", "[fe80::1]", "console.example.org", "Console.Example.ORG:443"),
    ],
)
def test_host_is_let_in_when_it_is_a_number_or_listed(host: str) -> None:
    assert refused(host=host) is None


@pytest.mark.parametrize(
    "host",
    [
        *("", None, "evil.example", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("evil.example:7402", "evil.example#127.0.0.1", "127.0.0.1@evil.example", "[::1", "a b"),
        *("xn--80ak6aa92e.example", "127.0.0.1:7402, evil.example", ".", "[evil.example]"),
    ],
)
def test_host_is_refused_when_a_name_server_could_have_led_here(host: str | None) -> None:
    assert refused(host=host) == (421, "FOREIGN_HOST")


def test_page_of_another_site_is_refused_when_it_reads() -> None:
    for site in ("cross-site", "same-site"):
        assert refused(sec_fetch_site=site) == (403, "FOREIGN_ORIGIN")
    assert refused(origin="http://evil.example") == (403, "FOREIGN_ORIGIN")
    assert refused(origin="null") == (403, "FOREIGN_ORIGIN")
    assert refused(origin="http://127.0.0.1:7400") == (403, "FOREIGN_ORIGIN")


def test_own_page_and_programs_are_let_in_when_they_read() -> None:
    assert refused(sec_fetch_site="same-origin") is None
    assert refused(sec_fetch_site="none") is None
    assert refused(origin="http://127.0.0.1:7402") is None
    assert refused("HEAD") is None


def test_link_from_another_site_is_followed_but_nothing_else() -> None:
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}
    assert refused(**link, sec_fetch_dest="document") is None
    assert refused(**link, sec_fetch_dest="iframe") == (403, "FOREIGN_ORIGIN")
    assert refused("POST", **link, sec_fetch_dest="document") == (403, "FOREIGN_ORIGIN")


def test_change_is_let_in_when_everything_is_our_own() -> None:
    assert refused("POST") is None
    assert refused("POST", origin="https://127.0.0.1:7402") is None
    assert refused("POST", content_type="application/json; charset=utf-8") is None


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"origin": None}, "FOREIGN_ORIGIN"),
        ({"origin": "http://evil.example"}, "FOREIGN_ORIGIN"),
        ({"origin": "http://127.0.0.1:7402.evil.example"}, "FOREIGN_ORIGIN"),
        ({"origin": "http://127.0.0.1:7402, http://evil.example"}, "FOREIGN_ORIGIN"),
        ({"sec_fetch_site": "cross-site"}, "FOREIGN_ORIGIN"),
        ({"content_type": None}, "NOT_JSON"),
        ({"content_type": "text/plain"}, "NOT_JSON"),
        ({"content_type": "application/x-www-form-urlencoded"}, "NOT_JSON"),
        ({TOKEN_HEADER: None}, "STALE_TOKEN"),
        ({TOKEN_HEADER: "the-toke"}, "STALE_TOKEN"),
        ({TOKEN_HEADER: "\u00e9"}, "STALE_TOKEN"),
    ],
)
def test_change_is_refused_when_a_foreign_page_could_have_sent_it(
    headers: dict[str, str | None], reason: str
) -> None:
    found = refused("POST", **headers)
    assert found is not None
    assert found[1] == reason


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_refused_so_that_no_preflight_succeeds(method: str) -> None:
    assert refused(method) == (HTTPStatus.METHOD_NOT_ALLOWED, "BAD_METHOD")


def test_host_is_taken_apart() -> None:
    assert host_of("[::1]:80") == "::1"
    assert host_of("A.b:80") == "a.b"
    assert host_of("a:b:c") is None
