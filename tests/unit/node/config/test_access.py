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
