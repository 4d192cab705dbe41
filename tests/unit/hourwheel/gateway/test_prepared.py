"""A configuration is prepared as a whole; two are equal if their files say the same."""

import ssl
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.gateway.prepared import make_tls, prepare
from hourwheel.gateway.settings import CertificateSection, HttpSection
from tests.support.certificates import Authority


def test_files_are_read_and_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = map(str, authority.issue("gateway", "localhost"))
    client_ca = str(authority.file)
    (tmp_path / "login").write_text("ann:secret\nmore\n")
    (tmp_path / "token").write_text("abc.def\n")
    section = HttpSection(
        cert=cert,
        key=key,
        client_ca=client_ca,
        certificates={
            "ann": CertificateSection(login_file=str(tmp_path / "login")),
            "bob": CertificateSection(token_file=str(tmp_path / "token")),
        },
    )
    made = prepare(section)
    assert made.authorizations == {"ann": "Basic YW5uOnNlY3JldA==", "bob": "Bearer abc.def"}
    assert made.tls is not None
    assert made.tls.verify_mode is ssl.CERT_REQUIRED
    names = [str(tmp_path / name) for name in ("login", "token")]
    assert made.paths == [cert, key, client_ca, *names]
    assert prepare(section) == made
    (tmp_path / "token").write_text("abc.xyz\n")
    assert prepare(section) != made
    assert "secret" not in repr(made)


def test_callers_are_served_in_the_clear_without_a_certificate() -> None:
    made = prepare(HttpSection())
    assert (made.tls, made.files, made.paths) == (None, (), [])


@pytest.mark.parametrize("raw", [None, b"\xff\xfe"])
def test_credentials_that_cannot_be_read_are_named(tmp_path: Path, raw: bytes | None) -> None:
    path = tmp_path / "login"
    if raw is not None:
        path.write_bytes(raw)
    section = HttpSection(
        cert="cert.pem",
        key="key.pem",
        client_ca="ca.pem",
        certificates={"ann": CertificateSection(login_file=str(path))},
    )
    with pytest.raises(errors.ConfigError, match="login cannot be read"):
        prepare(section)


def test_a_certificate_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cert").write_text("none")
    for cert in (tmp_path / "cert", tmp_path / "missing"):
        with pytest.raises(errors.ConfigError, match="cannot be used"):
            make_tls(str(cert), str(cert), "")
