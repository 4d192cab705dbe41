"""An authority of a test, and files of certificates that it has signed.

authority = Authority(tmp_path)
node = authority.issue("node", "localhost")
Tls(ca=authority.file, cert=node.certificate, key=node.key)
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import trustme


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

    def issue(
        self, name: str, *hosts: str, common_name: str | None = None, is_over: bool = False
    ) -> Files:
        """Files called `name`, written anew where they are there already."""
        ended = datetime(2001, 1, 1, tzinfo=UTC) if is_over else None
        issued = self._ca.issue_cert(*hosts, common_name=common_name, not_after=ended)
        files = Files(self.directory / f"{name}.crt", self.directory / f"{name}.key")
        for path, blobs in zip(
            files, (issued.cert_chain_pems, [issued.private_key_pem]), strict=True
        ):
            beside = path.with_suffix(".new")
            beside.write_bytes(b"".join(blob.bytes() for blob in blobs))
            beside.chmod(0o600)
            beside.replace(path)
        return files


def tls_section(node: Files, **more: object) -> dict[str, object]:
    """The node's section `tls`."""
    return {"certificate_file": str(node.certificate), "key_file": str(node.key), **more}
