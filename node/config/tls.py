"""Section `tls`: how clients know the node, and it them."""

from typing import Literal

from node.config import checks
from node.config.section import Section, key_of


class TlsSection(Section):
    """TLS towards clients. Files are read again when they change: guides/security.md."""

    certificate_file: str = key_of(
        "", "", "The node's certificate and what leads to its authority, PEM. Empty: no TLS."
    )
    key_file: str = key_of("", "", "Its private key, PEM, not encrypted; not readable by others.")
    client_certificates: Literal["none", "required"] = key_of(
        "none", "", "Whether clients of the API show certificates, by which they are known."
    )
    client_authority_file: str = key_of(
        "", "", "Who may sign clients' certificates, PEM; with client_certificates = required."
    )
    authority_file: str = key_of(
        "",
        "",
        "Who signs the nodes' certificates, PEM: the console asks the API of each. Empty: they all"
        " have this node's certificate.",
    )
    plain_listen: str = key_of(
        "",
        "",
        "host:port on loopback where the API is served without TLS, too; empty: nowhere.",
    )
    metrics: bool = key_of(True, "", "Whether /metrics and the probes are served over TLS, too.")
    console: bool = key_of(True, "", "Whether the console is.")

    @property
    def is_on(self) -> bool:
        """Whether clients are served over TLS."""
        return bool(self.certificate_file)


def validate_tls(tls: TlsSection) -> None:
    """Raise ConfigError where its keys do not fit together."""
    if tls.is_on != bool(tls.key_file):
        checks.refuse("tls.key_file", tls.key_file, "TLS needs a certificate and its key")
    needs_authority = tls.client_certificates == "required"
    if needs_authority != bool(tls.client_authority_file):
        checks.refuse(
            "tls.client_authority_file",
            tls.client_authority_file,
            "goes with tls.client_certificates = required, and that with it",
        )
    for key in ("client_authority_file", "authority_file", "plain_listen"):
        if getattr(tls, key) and not tls.is_on:
            checks.refuse(f"tls.{key}", getattr(tls, key), "there is no tls.certificate_file")
    if tls.plain_listen and not checks.is_loopback("tls.plain_listen", tls.plain_listen):
        checks.refuse("tls.plain_listen", tls.plain_listen, "not on loopback")
