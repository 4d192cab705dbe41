"""The files alone. A secure cluster that runs: tests/cluster/test_secure_cluster.py."""

import stat
from datetime import UTC, datetime
from pathlib import Path

from node.access.server_tls import ServerTls
from node.access.user_secrets import verify
from node.access.users_file import UsersFile
from node.config.sources import load
from node.tools.local_cluster.nodes import LocalCluster
from node.tools.local_cluster.security import ADMIN, access_to, make_files

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def test_files_are_the_owners_alone_and_fit_together(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, 3, is_secure=True)
    for file in cluster.security_directory.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for node in cluster.nodes:
        config = load(node.config_file, {})
        ServerTls(config.tls, lambda: NOW.timestamp() * 1_000)
        hashed = UsersFile(config.authentication.users_file).find_hash(ADMIN)
        assert hashed is not None
        assert cluster.access.user is not None
        assert verify(hashed, cluster.access.user[1])
        assert config.access.is_on
        assert config.access.administrator_names == {ADMIN}
    again = LocalCluster(tmp_path, 3)
    assert again.is_secure
    assert again.access == cluster.access


def test_secrets_are_others_each_time(tmp_path: Path) -> None:
    make_files(tmp_path, ["node-1"], NOW)
    first = access_to(tmp_path)
    make_files(tmp_path, ["node-1"], NOW)
    assert access_to(tmp_path) != first
