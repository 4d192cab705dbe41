"""What the configuration's keys must hold together, and how what is wrong is told."""

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from pydantic import BaseModel, ValidationError

from hourwheel import errors
from storage.views.unit import UNIT_BYTES

if TYPE_CHECKING:
    from node.config.model import ConsoleSection, NodeConfig, NodeSection

_NODE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})")
_PORT_MAX: Final = 65_535
_HOURS_A_DAY: Final = 24


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
        _refuse(key, address, "not a host:port")
    return found[1].strip("[]"), int(found[2])


def fits_together(config: "NodeConfig") -> None:
    """Check what no key can check alone.

    Raises:
        ConfigError: naming a key, its value and what it does not fit to.
    """
    _validate_node(config.node)
    _validate_console(config.console, config.node)
    for key, other in (
        ("dispatch.lead_ms_min", "dispatch.lead_ms_max"),
        ("groups.retry_delay_ms", "groups.retry_delay_ms_max"),
        ("limits.batch_bytes", "limits.stream_bytes_in_flight"),
        ("limits.stream_bytes_in_flight", "limits.bytes_in_flight"),
    ):
        value, bound = _value(config, key), _value(config, other)
        if value > bound:
            _refuse(key, value, f"more than {other} = {bound}")
    retained, segment = config.log.retention_bytes, config.log.segment_bytes
    if retained and retained < 2 * segment:
        _refuse("log.retention_bytes", retained, f"less than two of log.segment_bytes = {segment}")
    load_units, near_bytes = config.wheel.load_units, config.wheel.near_bytes
    if load_units * UNIT_BYTES > near_bytes:
        _refuse("wheel.load_units", load_units, f"more than wheel.near_bytes = {near_bytes} holds")
    _validate_cluster(config)
    hours = config.wheel.hour_level_hours
    if hours % _HOURS_A_DAY:
        _refuse("wheel.hour_level_hours", hours, "not a multiple of 24")


def _validate_node(node: "NodeSection") -> None:
    if not _NODE_ID.fullmatch(node.id):
        _refuse("node.id", node.id, "1 to 63 of A-Z a-z 0-9 _ . -, the first a letter or digit")
    _, port = split_address("node.listen", node.listen)
    if node.metrics_listen:
        split_address("node.metrics_listen", node.metrics_listen)
        if port and node.metrics_listen == node.listen:
            _refuse("node.metrics_listen", node.metrics_listen, "the same as node.listen")
    if node.advertised and split_address("node.advertised", node.advertised)[1] == 0:
        _refuse("node.advertised", node.advertised, "a client cannot connect to port 0")


def _validate_console(console: "ConsoleSection", node: "NodeSection") -> None:
    if console.listen:
        _, port = split_address("console.listen", console.listen)
        for key in ("listen", "metrics_listen"):
            if port and console.listen == getattr(node, key):
                _refuse("console.listen", console.listen, f"the same as node.{key}")
    for name in console.hosts.split():
        if not _HOST_NAME.fullmatch(name):
            _refuse("console.hosts", console.hosts, f"{name} is no name of a host")


class NodeAddresses(NamedTuple):
    """Where a node of the cluster is reached, each host:port."""

    api: str
    data: str
    control: str


def cluster_nodes(text: str) -> dict[str, NodeAddresses]:
    """The nodes of `cluster.nodes` by id.

    Raises:
        ConfigError: it says no such thing.
    """
    key, found = "cluster.nodes", dict[str, NodeAddresses]()
    for word in text.split():
        node_id, _, rest = word.partition("=")
        addresses = rest.split(",")
        if not _NODE_ID.fullmatch(node_id) or len(addresses) != len(NodeAddresses._fields):
            _refuse(key, word, "not id=api,data,control")
        if node_id in found:
            _refuse(key, word, "the same id twice")
        for address in addresses:
            if split_address(key, address)[1] == 0:
                _refuse(key, address, "others cannot connect to port 0")
        found[node_id] = NodeAddresses(*addresses)
    return found


def _validate_cluster(config: "NodeConfig") -> None:
    cluster = config.cluster
    nodes = cluster_nodes(cluster.nodes)
    if not nodes:
        return
    if cluster.id and not re.fullmatch(r"[0-9a-f]{32}", cluster.id):
        _refuse("cluster.id", cluster.id, "not 32 hexadecimal digits")
    if config.node.id not in nodes:
        _refuse("cluster.nodes", cluster.nodes, f"node.id = {config.node.id} is not among them")
    if not cluster.min_in_sync <= len(nodes):
        _refuse("cluster.min_in_sync", cluster.min_in_sync, f"more than the {len(nodes)} nodes")
    if config.log.durability != "sync":
        _refuse("log.durability", config.log.durability, "a cluster is always durable")
    files = (cluster.tls_certificate_file, cluster.tls_key_file, cluster.tls_authority_file)
    if any(files) and not all(files):
        _refuse("cluster.tls_certificate_file", files[0], "TLS needs certificate, key, authority")
    if len(nodes) > 1 and not any(files) and not cluster.secret_file:
        _refuse("cluster.secret_file", "", "a cluster needs a secret or TLS")


def _value(config: "NodeConfig", key: str) -> Any:
    section, name = key.split(".")
    return getattr(getattr(config, section), name)


def _refuse(key: str, value: object, why: str) -> NoReturn:
    raise errors.ConfigError(f"{key} = {value!r}: {why}", key=key, value=value)
