"""Files that say how the nodes are known and who calls: for command lines, and for other machines.

Secrets are in files: options are seen by all users of a machine, and by all who see a job.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hourwheel.errors import InvalidArgument
from hourwheel.transport.access import Access, Tls

_SYSTEM: Final = "system"


@dataclass(frozen=True, kw_only=True)
class AccessFiles:
    """Paths; empty: none. All empty: in the clear, and anonymous."""

    tls_ca: str = ""
    """Of the authority that signs the nodes' certificates; `system`: one that everybody trusts."""
    tls_cert: str = ""
    """The own certificate."""
    tls_key: str = ""
    """Its private key."""
    token_file: str = ""
    """A signed token, in its first line."""
    login_file: str = ""
    """A user's name, a colon, and the secret, in its first line."""

    def read(self) -> Access:
        """What they say now; certificates are read when a connection is made.

        Raises:
            InvalidArgument: they do not go together, or a file cannot be read.
        """
        user = None
        if self.login_file:
            name, colon, secret = _first_line(self.login_file).partition(":")
            if not colon:
                raise InvalidArgument(f"{self.login_file} has no name:secret")
            user = name, secret
        ca = None if self.tls_ca == _SYSTEM else self.tls_ca or None
        has_tls = self.tls_ca or self.tls_cert or self.tls_key
        return Access.of(
            Tls(ca, self.tls_cert or None, self.tls_key or None) if has_tls else None,
            _first_line(self.token_file) if self.token_file else None,
            user,
        )


def _first_line(path: str) -> str:
    """A token or secret that is alone in its file."""
    try:
        return Path(path).read_text("utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError):
        raise InvalidArgument(f"{path} cannot be read") from None
