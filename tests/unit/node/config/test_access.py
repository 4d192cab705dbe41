"""Section `access`: names, and what does not fit together."""

import pytest

from hourwheel import errors
from node.config.access import AccessSection
from node.config.model import NodeConfig


def test_administrators_are_names_with_spaces_between_them() -> None:
    config = NodeConfig.of({"access": {"is_on": True, "administrators": " root  ops-1 "}})
    assert config.access.administrator_names == {"root", "ops-1"}
    assert not AccessSection().is_on


def test_access_control_without_an_administrator_is_refused() -> None:
    with pytest.raises(errors.ConfigError) as caught:
        NodeConfig.of({"access": {"is_on": True, "administrators": " "}})
    assert caught.value.params["key"] == "access.administrators"


def test_console_that_takes_logins_beyond_this_machine_needs_tls() -> None:
    on = {"access": {"is_on": True, "administrators": "root"}}
    NodeConfig.of({**on, "console": {"listen": "127.0.0.1:0"}})
    NodeConfig.of({**on, "console": {"listen": ""}})
    with pytest.raises(errors.ConfigError) as caught:
        NodeConfig.of({**on, "console": {"listen": "0.0.0.0:0"}})
    assert caught.value.params["key"] == "console.listen"
    tls = {"certificate_file": "a", "key_file": "b"}
    NodeConfig.of({**on, "tls": tls, "console": {"listen": "0.0.0.0:0"}})
    with pytest.raises(errors.ConfigError):
        NodeConfig.of({**on, "tls": {**tls, "console": False}, "console": {"listen": "0.0.0.0:0"}})


BEYOND = {"node": {"metrics_listen": "10.0.0.1:7401"}}
FILES = {"certificate_file": "a", "key_file": "b"}


@pytest.mark.parametrize("tls", [{}, {**FILES, "metrics": False}])
def test_metrics_port_that_takes_logins_beyond_this_machine_needs_tls(tls: dict[str, str]) -> None:
    on = {"is_on": True, "administrators": "root"}
    with pytest.raises(errors.ConfigError, match=r"access\.metrics = false") as caught:
        NodeConfig.of({**BEYOND, "access": on, "tls": tls})
    assert caught.value.params["key"] == "node.metrics_listen"
    for address in ("", "127.0.0.1:7401", "localhost:0"):
        NodeConfig.of({"node": {"metrics_listen": address}, "access": on, "tls": tls})
    NodeConfig.of({**BEYOND, "access": on, "tls": FILES})
    NodeConfig.of({**BEYOND, "access": {**on, "metrics": False}, "tls": tls})
    NodeConfig.of({**BEYOND, "tls": tls})
