"""Which addresses a webhook may be sent to: by default only those of the public internet. Pure.

Somebody who can name a URL must not reach what only this machine reaches: loopback, private and
link-local networks, the metadata services of clouds. What counts is the address that is connected
to, also where an IPv6 address stands for an IPv4 one.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

_V4_IN_LAST_BYTES: Final = (
    IPv6Network("64:ff9b::/96"),  # NAT64
    IPv6Network("::/96"),  # IPv4-compatible, long given up
)
_REFUSED_V4: Final = (
    IPv4Network("192.0.0.0/24"),  # of protocols; some clouds serve themselves there
    IPv4Network("192.88.99.0/24"),  # relays of 6to4
    IPv4Network("168.63.129.16/32"),  # a cloud's own services, at a public address
)
_REFUSED_V6: Final = (
    IPv6Network("64:ff9b:1::/48"),  # NAT64 of a local network
    IPv6Network("2001::/32"),  # Teredo: an IPv4 address behind somebody's relay
    IPv6Network("fec0::/10"),  # site-local, long given up
    IPv6Network("5f00::/16"),  # segment routing, within a network
)
_V4_MASK: Final = 0xFFFF_FFFF


def is_public(text: str) -> bool:
    """Whether an address, without a name, is one of the public internet."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        inner = _embedded(address)
        if inner is None:
            refused = any(address in network for network in _REFUSED_V6)
            return not refused and _is_global(address)
        address = inner
    return not any(address in network for network in _REFUSED_V4) and _is_global(address)


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that it stands for."""
    found = address.ipv4_mapped or address.sixtofour
    if found is None and any(address in network for network in _V4_IN_LAST_BYTES):
        found = IPv4Address(int(address) & _V4_MASK)
    return found


def _is_global(address: IPv4Address | IPv6Address) -> bool:
    return (
        address.is_global
        and not address.is_private
        and not address.is_multicast
        and not address.is_reserved
        and not address.is_unspecified
        and not address.is_loopback
        and not address.is_link_local
    )
