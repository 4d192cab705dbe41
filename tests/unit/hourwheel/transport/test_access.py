from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors
from hourwheel.transport.access import Access, Tls
from hourwheel.transport.channel import Channel


def test_secrets_are_in_no_repr() -> None:
    for access in (Access.of(token="s3cret"), Access.of(user=("alice", "s3cret"))):
        assert "s3cret" not in repr(access) + str(access)


@pytest.mark.parametrize(
    "options",
    [
        {"token": "t", "user": ("a", "b")},
        {"user": ("", "b")},
        {"user": ("a:b", "c")},
        {"tls": Tls(cert="c")},
        {"tls": Tls(key="k")},
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgument):
        Access.of(**options)


@pytest.mark.parametrize("address", ["broker.example:7400", "10.0.0.1:7400", "[fe80::1]:7400"])
@pytest.mark.parametrize("secret", [{"token": "t"}, {"user": ("a", "b")}])
def test_secrets_do_not_leave_the_machine_in_the_clear(
    address: str, secret: dict[str, Any]
) -> None:
    with pytest.raises(errors.Unprotected) as caught:
        Channel(f"127.0.0.1:7400,{address}", **secret)
    assert caught.value.params["address"] == address
    Channel(address, tls=True, **secret)
    Channel("localhost:7400,[::1]:7400", **secret)
    Channel(address)


def test_equal_access_shares_connections() -> None:
    assert Access.of(True, "t") == Access.of(Tls(), "t")
    assert hash(Access.of(user=("a", "b"))) == hash(Access.of(user=("a", "b")))
    assert Access.of(token="t") != Access.of(token="u")


def test_metadata() -> None:
    assert Access().metadata() == ()
    assert Access.of(token=lambda: "t").metadata() == Access.of(token="t").metadata()
    assert Access.of(user=("a", "b")).metadata() == (("authorization", "Basic YTpi"),)
    assert Access.of(token=lambda: "t").metadata_changes


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgument, match="cannot be read"):
        Access.of(Tls(ca=tmp_path / "none")).channel_credentials()
