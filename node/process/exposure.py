"""Warnings at each start: what callers on other machines could do at the node's ports."""

from node.config.checks import is_loopback
from node.config.model import NodeConfig
from node.telemetry import logs

_log = logs.get(__name__)


def warn_of_others(config: NodeConfig) -> bool:
    """Log what each port that is not on loopback is open to.

    Returns:
        Whether any caller may do everything.
    """
    anyone_may_call = _warn_of_clients(config)
    if not config.access.is_on:  # with it, access.metrics = false is a choice
        _warn_of_pages("node.metrics_listen", config.node.metrics_listen)
        _warn_of_pages("console.listen", config.console.listen)
    return anyone_may_call


def _warn_of_clients(config: NodeConfig) -> bool:
    listen, tls = config.node.listen, config.tls
    if is_loopback("node.listen", listen):
        return False
    if not tls.is_on:
        _log.warning("clients_in_the_clear", address=listen)
    asks = tls.is_on and tls.client_certificates == "required"
    is_open = not config.access.is_on and not asks
    if is_open:
        _log.warning("anyone_may_call", address=listen)
    return is_open


def _warn_of_pages(key: str, address: str) -> None:
    if address and not is_loopback(key, address):
        _log.warning("anyone_may_look", key=key, address=address)
