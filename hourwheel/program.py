"""How a process that is one program begins and ends, without looking at all its objects again."""

import atexit
import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn

_INTERRUPTED: Final = 130
"""The exit code after Ctrl-C, as shells have it."""


def run(load: Callable[[], Callable[[], object]]) -> NoReturn:
    """Import a program, call it, and end this process with the exit code that it returns or raises.

    Of what is imported nothing is garbage, and all of it lives until the end. Python's collector of
    circles would look at it again and again while it grows, and the interpreter once more, object
    by object, before it ends: together a quarter of the processor time of a short command, or of
    a node that starts and stops.

    The process ends when threads have ended that are not daemons, `atexit` has called the others,
    and the standard streams are flushed. A program that fails ends as Python ends it; one that is
    interrupted by Ctrl-C, also while it is imported, ends with 130 and without a traceback.

    Args:
        load: imports the program and returns what is to be called.

    Raises:
        SystemExit: always, unless the program raises something else.
    """
    # Nothing here multiplies matrices, and numpy's threads for that are busy while they wait: a
    # tenth of a second of a core as each process starts.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code: list[Any] = []
    # What is registered first is called last.
    atexit.register(lambda: code and _end(*code))
    gc.disable()
    try:
        main = load()
        gc.freeze()
        gc.enable()
        returned: Any = main()
    except SystemExit as end:
        returned = end.code
    except KeyboardInterrupt:  # as a rule while it is imported: a program handles its own
        returned = _INTERRUPTED
    if returned is None or isinstance(returned, int):
        code.append(returned or 0)
    sys.exit(returned)


def _end(code: int) -> NoReturn:
    """End the process now. Who read what it wrote may have seen enough, as `head` does."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    os._exit(code & 0xFF)
