import pytest

from hourwheel import errors
from hourwheel.gateway import problems
from hourwheel.gateway.problems import headers_of, problem_of, status_of
from tests.tidy import tree


def test_each_error_has_a_status_and_only_our_own_faults_are_500() -> None:
    for kind in errors.BY_REASON.values():
        error = kind("why")
        status = status_of(error)
        assert kind.code in problems.BY_CODE
        assert problem_of(error)["status"] == status
        ours = {"INTERNAL", "DATA_LOSS", "UNKNOWN"}
        assert (status == 500) == (kind.code in ours), kind
    assert set(problems.BY_REASON) <= set(errors.BY_REASON)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.MessageTooLarge(), 413),
        (errors.UnknownTopic(), 404),
        (errors.AlreadyPending(), 409),
        (errors.StaleReceipt(), 409),
        (errors.DiskFull(), 507),
        (errors.QuotaReached(), 403),
        (errors.NotMaster(), 503),
        (errors.Timeout(), 504),
        (problems.HeadTooLarge(), 431),
        (problems.KeyReused(), 422),
    ],
)
def test_status_of(error: errors.HourwheelError, status: int) -> None:
    assert status_of(error) == status


def test_when_to_come_back() -> None:
    assert headers_of(errors.QuotaExceeded(retry_after_ms=1_200)) == {"retry-after": "2"}
    assert headers_of(errors.QuotaExceeded(retry_after_ms="soon")) == {"retry-after": "1"}
    assert headers_of(errors.Overloaded()) == headers_of(errors.DiskFull()) == {"retry-after": "1"}
    assert headers_of(errors.TooManyMoved()) == {}  # waiting does not help
    assert headers_of(errors.Timeout()) == {}
    assert headers_of(problems.MethodNotAllowed(allow="GET")) == {"allow": "GET"}
    assert "Bearer" in headers_of(errors.Unauthenticated())["www-authenticate"]


def test_what_a_problem_says_is_bounded() -> None:
    found = problem_of(errors.InvalidTopic("x" * 5_000, topic="y" * 5_000))
    assert found["title"] == "Invalid topic"
    assert found["detail"] == "x" * 1_024
    assert found["params"] == {"topic": "y" * 256}


def test_the_page_of_errors_has_each_of_the_gateways_own() -> None:
    own = problems.HttpRefused.__subclasses__()
    rows = [line.split("|") for line in tree.text("docs/ERRORS.md").splitlines()]
    listed = {row[1].strip(" `"): row[2].strip() for row in rows if len(row) == 5}
    assert len(own) > 5
    assert {one.reason: listed.get(one.reason) for one in own} == {
        one.reason: str(one.status) for one in own
    }
