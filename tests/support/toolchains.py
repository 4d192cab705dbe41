"""Compilers and runtimes of other languages, with which a client is made as docs/CLIENT.md says.

They are not locked by requirements/ as all else is: a machine has them, or has not.
"""

import os
import shutil
from typing import Final

TOOLS: Final = {"go": ("go",), "node": ("node", "npm")}
"""Languages, and the commands that each needs."""


def missing() -> dict[str, str]:
    """Languages that cannot be tried on this machine, and why."""
    why = {
        language: [tool for tool in tools if shutil.which(tool) is None]
        for language, tools in TOOLS.items()
    }
    return {language: f"missing {' and '.join(tools)}" for language, tools in why.items() if tools}


def required() -> list[str]:
    """Languages that must be tried, as the environment says: CLIENTS_REQUIRED="go node"."""
    return os.environ.get("CLIENTS_REQUIRED", "").split()
