"""What keeps a node alone from being promoted is said, and changes nothing."""

import json
from pathlib import Path

import pytest

from node.shard.node_meta import CONTROL, is_promoted, open_node_meta
from node.tools import promote
from storage.files.directory_lock import DirectoryLock
from storage.files.disk import RealDisk

NODES = "a=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"


class World:
    """A data directory of a node alone, and a configuration."""

    def __init__(self, folder: Path) -> None:
        self.data, self._file = folder / "data", folder / "hourwheel.toml"
        self.data.mkdir()
        self.disk = RealDisk(self.data)
        self.cluster_id = open_node_meta(self.disk, "a").cluster_id.hex()
        secret = folder / "secret"
        secret.write_text("of all nodes, and long enough\n")
        secret.chmod(0o600)
        self.keys = {
            "nodes": NODES,
            "id": self.cluster_id,
            "min_in_sync": 1,
            "secret_file": str(secret),
        }

    def promote(self, *options: str) -> int:
        lines = ["[node]", 'id = "a"', f"data_directory = {json.dumps(str(self.data))}"]
        lines += ["[cluster]", *(f"{key} = {json.dumps(one)}" for key, one in self.keys.items())]
        self._file.write_text("\n".join(lines) + "\n")
        return promote.main(["--config", str(self._file), *options])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodes": ""}, "no cluster.nodes"),
        ({"join": True}, "for the nodes that join"),
        ({"secret_file": ""}, "without a secret or TLS"),
        ({"id": ""}, "cluster.id = '"),
        ({"id": "ab" * 16}, "cluster.id = '"),
        ({"min_in_sync": 2}, "more than the 1 nodes"),
    ],
)
def test_configuration_that_will_not_do_is_refused(
    world: World, capsys: pytest.CaptureFixture[str], change: dict[str, object], said: str
) -> None:
    world.keys |= change  # type: ignore[arg-type]
    assert world.promote() == promote.EXIT_FAILED
    assert said in capsys.readouterr().err
    assert not (world.data / CONTROL).exists()


def test_node_that_runs_is_not_promoted(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    with DirectoryLock.acquire(world.data):
        assert world.promote() == promote.EXIT_FAILED
    assert "in use" in capsys.readouterr().err
    assert not is_promoted(world.disk)


def test_directory_of_another_node_or_none_is_refused(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    world.data = other
    assert world.promote() == promote.EXIT_FAILED
    assert "no data directory" in capsys.readouterr().err
    open_node_meta(RealDisk(other), "b")
    assert world.promote() == promote.EXIT_FAILED
    assert "belongs to node 'b'" in capsys.readouterr().err


def test_what_is_made_is_for_its_owner_alone(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert world.promote("--json") == promote.EXIT_OK
    facts = json.loads(capsys.readouterr().out)
    assert (facts["cluster_id"], facts["was_promoted"]) == (world.cluster_id, False)
    made = [world.data / CONTROL, *(world.data / CONTROL).rglob("*")]
    assert {one.stat().st_mode & 0o077 for one in made} == {0}
    assert world.promote() == promote.EXIT_OK
    assert "already" in capsys.readouterr().out


def test_node_that_runs_is_asked_and_restarted(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = world.data / "promotion-wanted"
    with DirectoryLock.acquire(world.data):
        assert world.promote("--restart", "false") == promote.EXIT_FAILED
        assert "false: exit code 1" in capsys.readouterr().err
        assert wanted.exists(), "whoever restarts it promotes it"
        assert world.promote("--restart", "no-such-program") == promote.EXIT_FAILED
        assert world.promote("--restart", "true", "--wait", "0") == promote.EXIT_FAILED
        assert "was not restarted yet" in capsys.readouterr().err
        assert world.promote("--restart", f"rm {wanted}") == promote.EXIT_FAILED
        assert "has started alone" in capsys.readouterr().err
        assert not is_promoted(world.disk)
        assert world.promote("--wait", "0") == promote.EXIT_FAILED
        assert "restart the node now" in capsys.readouterr().err
    assert world.promote("--restart", "true") == promote.EXIT_OK
    assert "Start it" not in capsys.readouterr().out
    assert not wanted.exists()
    with DirectoryLock.acquire(world.data):  # it runs, as the first of its cluster
        assert world.promote("--restart", "false") == promote.EXIT_OK


def test_start_of_a_stopped_node_is_asked_for(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):  # interrupted between the promotion and the start, it starts it again
        started = world.data.parent / "started"
        assert world.promote("--restart", f"touch {started}") == promote.EXIT_OK
        started.unlink()
    assert world.promote("--wait", "1", "--quiet") == promote.EXIT_OK
    out, err = capsys.readouterr()
    assert "start the node now" in err
    assert out.count("is the first node of cluster") == 2, "not where it is to be quiet"
