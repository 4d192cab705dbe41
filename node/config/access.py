"""Section `access`: whether callers need permissions, and who has them all."""

from node.config import checks
from node.config.section import Section, key_of


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

    @property
    def administrator_names(self) -> frozenset[str]:
        """Each by itself."""
        return frozenset(self.administrators.split())


def validate_access(section: AccessSection) -> None:
    """Raise ConfigError where its keys do not fit together."""
    if section.is_on and not section.administrator_names:
        checks.refuse("access.administrators", section.administrators, "nobody could do anything")
