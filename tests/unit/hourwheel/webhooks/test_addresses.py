from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.webhooks.addresses import is_public

PRIVATE = [
    *("127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1"),
    *("169.254.169.254", "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "198.18.0.1", "192.88.99.1"),
    *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1"),
    *(
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808",
        "2002:7f00:1::",
        "2002:a00:1::",
    ),
    *("2001::1", "2001:db8::1", "100::1", "5f00::1", "localhost", "", "1.2.3", "0x7f000001"),
]
PUBLIC = [
    *("8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"),
    "2002:808:808::1",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_not_of_the_public_internet(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is(address: str) -> None:
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_an_address_in_another_form_is_the_same(address: IPv4Address) -> None:
    number = int(address)
    mapped = f"::ffff:{number >> 16:x}:{number & 0xFFFF:x}"
    nat64 = f"64:ff9b::{number >> 16:x}:{number & 0xFFFF:x}"
    six_to_four = f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1"
    assert {is_public(one) for one in (mapped, nat64, six_to_four)} == {is_public(str(address))}
