"""Scripts in processes of their own, for what cannot be tried in the process of the tests: forks.

The tests' own process has threads, gRPC among them, and a child of it could not be trusted.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
_HANG_S: Final = 120
"""A process that hangs is killed, and fails its test."""
_PRELUDE: Final = '''
import gc, os, signal, sys, traceback
signal.alarm({hang_s})

from hourwheel import errors

def in_child(call):
    """Fork; the child prints what `call` gives, or the name of its error."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        signal.alarm({hang_s})
        try:
            print("child", call())
        except errors.HourwheelError as error:
            print("child", type(error).__name__)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child ended with status {{status}}"
'''


def run_script(script: str, *arguments: str) -> list[str]:
    """What the lines of `script` print, run after `in_child` is defined; it must end well."""
    text = _PRELUDE.format(hang_s=_HANG_S) + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments],
        cwd=_ROOT,
        # With gRPC's own support for forks, a part of all children crash in its threads.
        env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0"},
        capture_output=True,
        text=True,
        timeout=2 * _HANG_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
    assert done.stderr == ""
    return done.stdout.splitlines()
