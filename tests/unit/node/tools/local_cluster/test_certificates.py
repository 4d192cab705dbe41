"""The command that makes a folder of certificates, once."""

import stat
from pathlib import Path

import pytest
from cryptography import x509

from node.process.command import main
from node.tools.local_cluster.security import ADMIN, PROBE


def test_folder_is_filled_once_and_its_authority_is_public(tmp_path: Path) -> None:
    private, public = tmp_path / "private", tmp_path / "public"
    command = ["certificates", "--public", str(public), str(private), "a", "b"]
    assert main(command) == 0
    first = {path.name: path.read_bytes() for path in private.iterdir()}
    assert main(command) == 0
    assert {path.name: path.read_bytes() for path in private.iterdir()} == first
    for node in ("a", "b"):
        certificate = x509.load_pem_x509_certificate(first[f"{node}.crt"])
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert node in names.get_values_for_type(x509.DNSName)
    assert {ADMIN, PROBE} == {line.split(":")[0] for line in first["users"].decode().split()}
    (copied,) = public.iterdir()
    assert copied.read_bytes() == first["authority.pem"]
    assert stat.S_IMODE(copied.stat().st_mode) == 0o644
    assert stat.S_IMODE(public.stat().st_mode) == 0o755


@pytest.mark.parametrize("nodes", [["a", "a"], ["../a"], ["a", ""]])
def test_names_that_are_no_ids_are_refused(
    tmp_path: Path, nodes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certificates", str(tmp_path / "new"), *nodes]) == 78
    assert "no ids of nodes" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
