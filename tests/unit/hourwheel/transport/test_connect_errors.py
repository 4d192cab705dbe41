import pytest

from hourwheel.transport.connect_errors import describe, explain

FAILED = "failed to connect to all addresses; last error: "


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        (
            (
                f"{FAILED}UNKNOWN: ipv4:127.0.0.1:9: Failed to connect to remote host: Connection "
                "refused"
            ),
            "is a node running there",
        ),
        (
            (
                "errors resolving nosuch.invalid:7400: [field:hostname lookup error:address lookup "
                "failed for nosuch.invalid:7400: Domain name not found]"
            ),
            "name cannot be resolved",
        ),
        (
            (
                f"{FAILED}INTERNAL: ipv4:127.0.0.1:1: Failed parsing HTTP/2 (Expected SETTINGS "
                "frame as the first frame, got frame type 80) (Trying to connect an http1.x "
                "server (HTTP status 400))"
            ),
            "gRPC is not spoken there: is it the port of the metrics or of the console?",
        ),
        (
            (
                f"{FAILED}UNKNOWN: ipv4:127.0.0.1:1: Tls handshake failed (TSI_PROTOCOL_FAILURE): "
                "SSL_ERROR_SSL: error:100000f7:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER: "
                "Invalid certificate verification context: OK"
            ),
            "no TLS is spoken there",
        ),
    ],
)
def test_explain_when_the_cause_is_known(details: str, expected: str) -> None:
    assert expected in explain(details)
    assert FAILED not in explain(details)


@pytest.mark.parametrize("address", ["ipv4:127.0.0.1:1:", "ipv6:%5B::1%5D:9:", "unix:/tmp/none:"])
def test_explain_when_the_cause_is_another_one(address: str) -> None:
    details = f"{FAILED}UNAVAILABLE: {address} recvmsg:Connection reset by peer (104)"
    assert explain(details) == "recvmsg:Connection reset by peer (104)"
    assert explain("") == ""
    assert explain("x" * 1_000) == "x" * 200


def test_describe_when_causes_are_known_or_not() -> None:
    assert describe("a:1", [""]) == "no connection to a:1"
    assert describe("a:1,b:1", ["gone", "", "gone"]) == "no connection to a:1,b:1: gone"
    assert describe("a:1,b:1", ["gone", "deaf"]) == "no connection to a:1,b:1: gone; deaf"
