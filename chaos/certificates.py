"""A throw-away authority, and certificates with node ids in them, by the `openssl` command."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self

_DAYS: Final = "2"


class Files(NamedTuple):
    """Of one node, named as in the configuration."""

    tls_certificate_file: str
    tls_key_file: str
    tls_authority_file: str


def can_certify() -> bool:
    """Whether `openssl` is there."""
    return shutil.which("openssl") is not None


@dataclass(frozen=True)
class Authority:
    """Signs certificates. Its files are in `folder`."""

    folder: Path

    @property
    def certificate(self) -> Path:
        """Its own, for those who trust it."""
        return self.folder / "ca.pem"

    @classmethod
    def make(cls, folder: Path) -> Self:
        """Make one. Raises CalledProcessError if `openssl` cannot."""
        folder.mkdir(parents=True, exist_ok=True)
        _openssl(
            *("req", "-x509", *_NEW_KEY, "-days", _DAYS, "-subj", "/CN=chaos authority"),
            *("-keyout", folder / "ca.key", "-out", cls(folder).certificate),
            *("-addext", "basicConstraints=critical,CA:TRUE"),
        )
        return cls(folder)

    def issue(self, node: str, addresses: tuple[str, ...] = ()) -> Files:
        """A key and a certificate for a node. `addresses`: IP addresses that it has."""
        key, request, certificate, extensions = (
            self.folder / f"{node}.{end}" for end in ("key", "csr", "pem", "ext")
        )
        _openssl("req", *_NEW_KEY, "-subj", f"/CN={node}", "-keyout", key, "-out", request)
        names = [f"DNS:{node}", *(f"IP:{address}" for address in addresses)]
        extensions.write_text(f"subjectAltName={','.join(names)}\n")
        _openssl(
            *("x509", "-req", "-in", request, "-days", _DAYS, "-CAcreateserial"),
            *("-CA", self.certificate, "-CAkey", self.folder / "ca.key"),
            *("-extfile", extensions, "-out", certificate),
        )
        return Files(str(certificate), str(key), str(self.certificate))


_NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _openssl(*arguments: object) -> None:
    command = ["openssl", *(str(one) for one in arguments)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
