"""Section `access`: whether callers need permissions, and who has them all."""

from node.config import checks
from node.config.section import Section, key_of
from node.config.tls import TlsSection


class AccessSection(Section):
    """Permissions: guides/access.md. The same on every node."""

    is_on: bool = key_of(
        False,
        "",
        "Whether callers of the API need permissions; health and reflection are for everybody. "
        "false: everybody may do everything.",
    )
    administrators: str = key_of(
        "",
        "",
        "Names of callers, with spaces between them, who have all permissions.",
    )

    audit_file: str = key_of(
        "",
        "",
        "File of the audit log: one JSON object a line for each administrative call and each "
        "refused one (LOGS.md); it may be renamed at any time. Empty: they go to the log.",
    )

    metrics: bool = key_of(
        True,
        "",
        "Whether, with is_on, /metrics and /stalls are for those who may look at the cluster, by "
        "token or secret. false: for everybody, as the probes are.",
    )

    @property
    def administrator_names(self) -> frozenset[str]:
        """Each by itself."""
        return frozenset(self.administrators.split())


def validate_access(section: AccessSection, metrics: str, console: str, tls: TlsSection) -> None:
    """Raise ConfigError where its keys do not fit together.

    Args:
        section: what is checked.
        metrics: where /metrics listens; empty: nowhere.
        console: where the console listens; empty: nowhere.
        tls: section `tls`.
    """
    if not section.is_on:
        return
    if not section.administrator_names:
        checks.refuse(
            "access.administrators", section.administrators, "no caller could do anything"
        )
    if section.metrics and not (tls.is_on and tls.metrics):
        _refuse_beyond(
            "node.metrics_listen",
            metrics,
            "use TLS, or access.metrics = false, with which /metrics needs no login",
        )
    if not (tls.is_on and tls.console):
        _refuse_beyond("console.listen", console, "use TLS")


def _refuse_beyond(key: str, address: str, instead: str) -> None:
    """Refuse a port without TLS that takes logins and that other machines reach."""
    if address and not checks.is_loopback(key, address):
        checks.refuse(key, address, f"logins would be sent in the clear: {instead}")
