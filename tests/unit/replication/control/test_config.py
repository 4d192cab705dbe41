import json
from pathlib import Path
from typing import Any

import pytest

from hourwheel import errors
from replication.control.config import ControlConfig, parse

VALUES: dict[str, Any] = {
    "node_id": "n1",
    "cluster_id": "c1" * 16,
    "directory": "data",
    "socket_path": "run/s",
    "listen": "127.0.0.1:7001",
    "peers": {"n2": "127.0.0.1:7002", "n3": "127.0.0.1:7003"},
    "secret_file": "secret",
}


def test_configuration_comes_back_from_its_options(tmp_path: Path) -> None:
    config = ControlConfig(**VALUES, min_in_sync=2)
    assert parse(config.arguments()) == config
    assert config.node_ids == ["n1", "n2", "n3"]
    file = tmp_path / "control.json"
    file.write_text(config.arguments()[1])
    assert parse(["--config", f"@{file}"]) == config
    assert config.timings.raft_s_max == config.raft_s_max


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"colour": "red"}, "colour"),
        ({"node_id": "../n1"}, "no node id"),
        ({"node_id": "n2"}, "peer of itself"),
        ({"node_id": 7}, "wrong type"),
        ({"peers": ["n2"]}, "wrong type"),
        ({"allow_faults": 1}, "wrong type"),
        ({"linger_ms": True}, "wrong type"),
        ({"cluster_id": "C1" * 16}, "hexadecimal"),
        ({"listen": "here"}, "host:port"),
        ({"min_in_sync": 0}, "min_in_sync"),
        ({"raft_s_min": 2.0}, "raft_s_min"),
        ({"event_loop": "trio"}, "event_loop"),
    ],
)
def test_configuration_is_refused_with_the_reason(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.ConfigError, match=said):
        parse(["--config", json.dumps({**VALUES, **changes})])


@pytest.mark.parametrize("text", ["", "[]", "{", '{"node_id": "n1"}'])
def test_text_that_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(errors.ConfigError):
        parse(["--config", text])


def test_secret_is_read_from_its_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    config = ControlConfig(**{**VALUES, "secret_file": str(secret)})
    with pytest.raises(errors.ConfigError, match="cannot be read"):
        config.security([])
    secret.write_bytes(b"sixteen bytes at least\n")
    assert config.security([]).secret == b"sixteen bytes at least"
    assert "sixteen" not in "".join(config.arguments())


def test_certificates_go_before_a_secret(tmp_path: Path) -> None:
    config = ControlConfig(**VALUES, certificate_file=str(tmp_path / "no"))
    with pytest.raises(errors.ConfigError, match="certificates"):
        config.security([])
