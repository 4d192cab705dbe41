from pathlib import Path

import pytest

from hourwheel import errors
from replication.raft.security import (
    is_loopback,
    names_of,
    split_address,
    with_certificates,
    with_secret,
)

SECRET = b"0123456789abcdef"


@pytest.mark.parametrize(
    ("address", "is_local"),
    [
        ("127.0.0.1:1", True),
        ("127.8.8.8:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("localhost.example:1", False),
        ("node-1:1", False),
    ],
)
def test_secret_alone_is_for_loopback(address: str, is_local: bool) -> None:
    assert is_loopback(address) == is_local
    if is_local:
        assert with_secret(SECRET, ["127.0.0.1:2", address]).secret == SECRET
    else:
        with pytest.raises(errors.ConfigError, match="certificates"):
            with_secret(SECRET, ["127.0.0.1:2", address])


def test_short_secret_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match="16 bytes"):
        with_secret(b"short", [])


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:65536"])
def test_address_without_host_or_port_is_refused(address: str) -> None:
    with pytest.raises(errors.ConfigError, match="host:port"):
        split_address(address)


def test_names_are_the_dns_names_and_else_the_common_name() -> None:
    subject = ((("organizationName", "o"),), (("commonName", "n1"),))
    assert names_of({"subject": subject}) == {"n1"}
    alternatives = (("DNS", "n2"), ("DNS", "n2.example"), ("IP Address", "127.0.0.1"))
    assert names_of({"subject": subject, "subjectAltName": alternatives}) == {"n2", "n2.example"}
    assert names_of({}) == frozenset()


def test_missing_certificate_is_a_mistake_in_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="cannot be loaded"):
        with_certificates(tmp_path / "a", tmp_path / "b", tmp_path / "c")


def test_certificates_are_asked_of_both_sides() -> None:
    assert with_secret(SECRET, []).certified(None) is None
