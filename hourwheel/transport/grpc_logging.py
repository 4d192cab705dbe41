"""What gRPC itself writes on standard error.

By default its core also says what is no trouble of ours, such as `I1121 ... Got goaway`
whenever a node at the other end stops. The processes of Hourwheel ask it for errors only. A program
that uses the client decides for itself: what a process writes is the program's.
"""

import os
from typing import Final

VERBOSITY: Final = "GRPC_VERBOSITY"
"""The variable of the environment that gRPC reads when it is loaded, and not again."""


def keep_errors_only() -> None:
    """Keep all but errors away, unless the environment says what to show; before gRPC is loaded."""
    os.environ.setdefault(VERBOSITY, "ERROR")
