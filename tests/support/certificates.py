"""An authority of a test, and files of certificates that it has signed.

authority = Authority(tmp_path)
node = authority.issue("node", "localhost")
Tls(ca=authority.file, cert=node.certificate, key=node.key)
"""

from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class Files(NamedTuple):
    """A certificate and its key, PEM."""

    certificate: Path
    key: Path


class Authority:
    """See the top of this file."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory = directory
        self._ca = trustme.CA()
        self.file = directory / f"{name}.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def signer(self) -> tuple[x509.Name, Any]:
        """What signs: its name and its key."""
        name = x509.load_pem_x509_certificate(self._ca.cert_pem.bytes()).subject
        return name, load_pem_private_key(self._ca.private_key_pem.bytes(), None)

    def issue(
        self,
        name: str,
        *hosts: str,
        common_name: str | None = None,
        begins: datetime | None = None,
        ends: datetime | None = None,
    ) -> Files:
        """Files called `name`, written anew where they are there already."""
        issued = self._ca.issue_cert(
            *hosts, common_name=common_name, not_before=begins, not_after=ends
        )
        files = Files(self.directory / f"{name}.crt", self.directory / f"{name}.key")
        for path, blobs in zip(
            files, (issued.cert_chain_pems, [issued.private_key_pem]), strict=True
        ):
            beside = path.with_suffix(".new")
            beside.write_bytes(b"".join(blob.bytes() for blob in blobs))
            beside.chmod(0o600)
            beside.replace(path)
        return files


def self_signed(directory: Path) -> Files:
    """A certificate for 127.0.0.1 that nobody else has signed; with its key as `self.crt`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "itself")])
    return _signed(directory / "self", (name, key), key)


def server_only(authority: Authority) -> Files:
    """One that the authority has signed, good for servers, and not for clients."""
    name, key = authority.signer()
    return _signed(
        authority.directory / "server", (name, key), ec.generate_private_key(ec.SECP256R1())
    )


def _signed(path: Path, signer: tuple[x509.Name, Any], key: ec.EllipticCurvePrivateKey) -> Files:
    issuer, signing_key = signer
    certificate = (
        x509.CertificateBuilder(issuer, issuer, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2090, 1, 1, tzinfo=UTC))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(signing_key, hashes.SHA256())
    )
    files = Files(path.with_suffix(".crt"), path.with_suffix(".key"))
    files.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    files.key.chmod(0o600)
    return files


def tls_section(node: Files, **more: object) -> dict[str, object]:
    """The node's section `tls`."""
    return {"certificate_file": str(node.certificate), "key_file": str(node.key), **more}
