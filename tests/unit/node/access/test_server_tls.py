import base64
import shutil
import ssl
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from hourwheel import errors
from node.access.server_tls import ServerTls
from node.config.model import NodeConfig
from tests.support.certificates import Authority, Files, tls_section

NOW_MS = 1_800_000_000_000.0


def tls_of(files: Files, **more: object) -> ServerTls:
    section = NodeConfig.of({"tls": tls_section(files, **more)}).tls
    return ServerTls(section, lambda: NOW_MS)


def refused(files: Files, **more: object) -> errors.ConfigError:
    with pytest.raises(errors.ConfigError) as caught:
        tls_of(files, **more)
    return caught.value


def test_files_that_fit(tmp_path: Path) -> None:
    tls = tls_of(Authority(tmp_path).issue("node", "localhost"))
    assert isinstance(tls.context, ssl.SSLContext)
    assert tls.version == 1


@pytest.mark.parametrize("part", ["certificate", "key"])
def test_files_when_one_is_missing(tmp_path: Path, part: str) -> None:
    files = Authority(tmp_path).issue("node", "localhost")
    getattr(files, part).unlink()
    assert refused(files).params["key"] == f"tls.{part}_file"


@pytest.mark.parametrize("part", ["certificate", "key"])
@pytest.mark.parametrize("text", ["", "-----BEGIN NONSENSE-----", "x" * 2_000_000])
def test_files_when_one_is_nonsense(tmp_path: Path, part: str, text: str) -> None:
    files = Authority(tmp_path).issue("node", "localhost")
    getattr(files, part).write_text(text)
    assert refused(files).params["key"] == f"tls.{part}_file"


def test_files_when_the_key_is_of_another(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = authority.issue("one", "localhost"), authority.issue("two", "localhost")
    error = refused(Files(one.certificate, other.key))
    assert "is not the key of" in error.message


def test_files_when_others_can_read_the_key(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("node", "localhost")
    files.key.chmod(0o644)
    assert "others may read" in refused(files).message
    files.key.chmod(0o440)
    tls_of(files)


def test_files_when_the_authority_is_nonsense(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("node", "localhost")
    error = refused(files, client_certificates="required", client_authority_file=str(files.key))
    assert error.params["key"] == "tls.client_authority_file"


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [
        one.msg["event"] if isinstance(one.msg, dict) else one.message for one in caplog.records
    ]
    caplog.clear()
    return found


def test_certificate_that_is_over_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Authority(tmp_path).issue("node", "localhost", ends=datetime(2001, 1, 1, tzinfo=UTC))
    tls_of(files)
    assert events(caplog) == ["certificate_not_valid"]


def test_change_of_the_files_is_taken_when_they_fit_together(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    authority = Authority(tmp_path)
    files = authority.issue("node", "localhost")
    tls = tls_of(files)
    first = tls.context
    tls.look()
    assert tls.context is first
    other = authority.issue("other", "localhost")
    files.certificate.write_bytes(other.certificate.read_bytes())
    tls.look()
    tls.look()
    assert tls.context is first
    assert events(caplog) == ["access_files_refused"]
    files.key.write_bytes(other.key.read_bytes())
    tls.look()
    assert tls.context is not first
    assert tls.version == 2
    assert events(caplog) == ["access_files_read"]


def test_certificate_with_any_bytes_wrong_is_refused_or_taken_and_the_next_one_is_looked_at(
    tmp_path: Path,
) -> None:
    """What is raised in `watch` would end it: no new certificate would be seen any more."""
    authority = Authority(tmp_path)
    files = authority.issue("node", "localhost")
    tls, random = tls_of(files), Random(1)
    leaf = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    raw = leaf.public_bytes(Encoding.DER)
    for _ in range(600):
        wrong = bytearray(raw)
        wrong[random.randrange(len(wrong))] = random.randrange(256)
        body = base64.encodebytes(wrong).decode()
        files.certificate.write_text(
            f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n"
        )
        tls.look()
    version = tls.version
    authority.issue("node", "localhost")
    tls.look()
    assert tls.version == version + 1


def test_key_that_is_removed_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Authority(tmp_path).issue("node", "localhost")

    def read_and_remove(key: str, path: str) -> bytes:
        raw = Path(path).read_bytes()
        if path == str(files.key):
            files.key.unlink()
        return raw

    monkeypatch.setattr("node.access.server_tls.read_file", read_and_remove)
    assert refused(files).params["key"] == "tls.key_file"


def mounted(directory: Path, name: str, files: Files) -> None:
    """As Kubernetes changes a mounted Secret: a new folder, and one link that is swapped."""
    folder = directory / f"..{name}"
    folder.mkdir()
    for key, path in (("tls.crt", files.certificate), ("tls.key", files.key)):
        (folder / key).write_bytes(path.read_bytes())
        (folder / key).chmod(0o640)
    link = directory / "..data_tmp"
    link.symlink_to(folder.name)
    before = directory / "..data"
    old = before.resolve() if before.exists() else None
    link.replace(before)
    if old is not None:
        shutil.rmtree(old)


def test_secret_that_is_mounted_is_followed_when_kubernetes_changes_it(tmp_path: Path) -> None:
    authority, mount = Authority(tmp_path), tmp_path / "mount"
    mount.mkdir()
    paths = Files(mount / "tls.crt", mount / "tls.key")
    for path in paths:
        path.symlink_to(Path("..data") / path.name)
    one, two = authority.issue("one", "localhost"), authority.issue("two", "localhost")
    told: list[bool] = []
    mounted(mount, "first", one)
    section = NodeConfig.of({"tls": tls_section(paths)}).tls
    tls = ServerTls(section, lambda: NOW_MS, told.append)
    tls.look()
    assert (tls.version, told) == (1, [])
    mounted(mount, "second", two)
    tls.look()
    assert (tls.version, told) == (2, [False])
    mounted(mount, "third", Files(one.certificate, two.key))
    tls.look()
    tls.look()
    assert (tls.version, told) == (2, [False, True, True])
    mounted(mount, "fourth", one)
    tls.look()
    assert (tls.version, told) == (3, [False, True, True, False])


def test_valid_certificate_stays_in_use_when_another_one_is_over_or_not_yet_valid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("node", "localhost")
    tls = tls_of(files)
    authority.issue("node", "localhost", ends=datetime(2001, 1, 1, tzinfo=UTC))
    tls.look()
    assert (tls.version, events(caplog)) == (1, ["access_files_refused"])
    authority.issue("node", "localhost")
    tls.look()
    assert tls.version == 2
