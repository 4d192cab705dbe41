"""Addresses in the configuration, and how it says what is wrong with a value."""

import ipaddress
import re
from difflib import get_close_matches
from typing import Final, NamedTuple, NoReturn

from pydantic import BaseModel, ValidationError

from hourwheel import errors
from hourwheel.types import NodeId

NODE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")
_PORT_MAX: Final = 65_535


def error_of(error: ValidationError, config: type[BaseModel]) -> errors.ConfigError:
    """All that pydantic found, as one error; its params are about the first key.

    Args:
        error: what is wrong with a configuration.
        config: of this kind; the keys that it has are proposed for those that it has not.
    """
    found = error.errors(include_url=False)
    keys = [".".join(str(part) for part in one["loc"]) for one in found]
    texts = [
        f"{key} = {one['input']!r}: {_why(one['type'], one['msg'], key, config)}"
        for key, one in zip(keys, found, strict=True)
    ]
    return errors.ConfigError("; ".join(texts), key=keys[0], value=found[0]["input"])


def _why(kind: str, message: str, key: str, config: type[BaseModel]) -> str:
    if kind != "extra_forbidden":
        return message.lower()
    sections = {name: field.annotation for name, field in config.model_fields.items()}
    known = [
        f"{name}.{one}"
        for name, section in sections.items()
        if section is not None
        for one in section.model_fields
    ]
    near = get_close_matches(key, [*sections, *known], 1)
    return "there is no such key" + (f" (is {near[0]} meant?)" if near else "")


def split_address(key: str, address: str) -> tuple[str, int]:
    """Host (without brackets) and port of a `host:port`.

    Raises:
        ConfigError: it is none; `key` is what it says it is about.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found[2]) > _PORT_MAX:
        refuse(key, address, "not a host:port")
    return found[1].strip("[]"), int(found[2])


def is_loopback(key: str, address: str) -> bool:
    """Whether only this machine reaches a `host:port`. Raises ConfigError: it is none."""
    host, _ = split_address(key, address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class NodeAddresses(NamedTuple):
    """Where a node of the cluster is reached, each host:port."""

    api: str
    data: str
    control: str


def cluster_nodes(text: str) -> dict[NodeId, NodeAddresses]:
    """The nodes of `cluster.nodes` by id.

    Raises:
        ConfigError: it says no such thing.
    """
    key, found = "cluster.nodes", dict[NodeId, NodeAddresses]()
    for word in text.split():
        name, _, rest = word.partition("=")
        node_id = NodeId(name)
        addresses = rest.split(",")
        if not NODE_ID.fullmatch(node_id) or len(addresses) != len(NodeAddresses._fields):
            refuse(key, word, "not id=api,data,control")
        if node_id in found:
            refuse(key, word, "the same id twice")
        for address in addresses:
            if split_address(key, address)[1] == 0:
                refuse(key, address, "others cannot connect to port 0")
        found[node_id] = NodeAddresses(*addresses)
    return found


def refuse(key: str, value: object, why: str) -> NoReturn:
    """Raise ConfigError: the value of `key` will not do."""
    raise errors.ConfigError(f"{key} = {value!r}: {why}", key=key, value=value)
