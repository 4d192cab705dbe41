"""Files and the environment."""

from pathlib import Path

import pytest

from hourwheel.errors import ConfigError
from node.config.model import NodeConfig
from node.config.sources import load


def written(folder: Path, text: str) -> Path:
    path = folder / "node.toml"
    path.write_text(text)
    return path


def test_load_gives_defaults_when_there_is_neither_file_nor_environment() -> None:
    assert load(None, {}) == NodeConfig.of()


def test_load_reads_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, '[node]\nid = "a"\n[log]\nsegment_bytes = 1_000_000\n')
    config = load(path, {})
    assert (config.node.id, config.log.segment_bytes) == ("a", 1_000_000)
    assert config.log.durability == "sync"


def test_load_prefers_the_environment_key_by_key(tmp_path: Path) -> None:
    path = written(tmp_path, '[node]\nid = "a"\n[log]\nsegment_bytes = 1_000_000\n')
    environ = {
        "HOURWHEEL_LOG__ASYNC_FLUSH_MS": "7",
        "HOURWHEEL_LOG__DURABILITY": "async",
        "HOURWHEEL_TOPICS__AUTO_CREATE": "false",
        "HOURWHEEL_NODE__DATA_DIRECTORY": "/var/lib/x",
        "HOURWHEEL_CLOCK__SLEW_PERCENT_MAX": "2.5",
    }
    config = load(path, environ)
    assert (config.node.id, config.log.segment_bytes) == ("a", 1_000_000)
    assert (config.log.async_flush_ms, config.log.durability) == (7, "async")
    assert config.topics.auto_create is False
    assert config.node.data_directory == Path("/var/lib/x")
    assert config.clock.slew_percent_max == 2.5


def test_load_keeps_what_nobody_chose_apart_from_what_somebody_did(tmp_path: Path) -> None:
    file = tmp_path / "hourwheel.toml"
    file.write_text("[console]\nconnections = 16\n")
    default = load(file, {})
    assert not default.console.is_listen_configured
    chosen = load(file, {"HOURWHEEL_CONSOLE__LISTEN": default.console.listen})
    assert chosen.console.is_listen_configured
    assert chosen == default


def test_load_leaves_variables_of_other_programs_alone() -> None:
    environ = {"HOURWHEEL_NODE": "broker:7400", "HOURWHEEL_LOG": "x", "PATH__X": "y"}
    assert load(None, environ) == NodeConfig.of()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("HOURWHEEL_LGO__SEGMENT_BYTES", "lgo"),
        ("HOURWHEEL_LOG__SEGMNT_BYTES", "log.segmnt_bytes"),
        ("HOURWHEEL_LOG__SEGMENT_BYTES", "log.segment_bytes"),
        ("HOURWHEEL_LOG__", "log."),
    ],
)
def test_load_refuses_variables_that_name_no_key_or_no_value(name: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {name: "abc"})
    assert caught.value.params["key"] == key


@pytest.mark.parametrize("text", ["[node", "node = = 3", "[node]\nid = 'a'\nid = 'b'"])
def test_load_refuses_a_file_that_is_no_toml(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"node\.toml"):
        load(written(tmp_path, text), {})


def test_load_refuses_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "missing.toml", {})
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "binary.toml", {})


def test_load_refuses_values_of_the_file_as_if_they_were_given_otherwise(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, "[wheel]\nhorizon_days = 1\n"), {})
    assert caught.value.params["key"] == "wheel.horizon_days"


def test_load_names_all_that_is_wrong_and_what_may_be_meant(tmp_path: Path) -> None:
    text = "[node]\nlistn = 'a:1'\n[wheel]\nhorizon_days = 1\n[lgo]\n[disk]\nqqqqqq = 1\n"
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, text), {})
    said = caught.value.message
    assert "node.listn = 'a:1': there is no such key (is node.listen meant?)" in said
    assert "wheel.horizon_days = 1: input should be greater than or equal to 731" in said
    assert "lgo = {}: there is no such key (is log meant?)" in said
    assert "disk.qqqqqq = 1: there is no such key (" not in said
