"""What a long benchmark tells while it runs, so that people see whether it does."""

import asyncio
import sys
import time
from asyncio.subprocess import Process
from typing import Final

_STOP_S: Final = 60.0


def say(text: str) -> None:
    """A line, with the time of day, beside the results."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')}  {text}\n")
    sys.stderr.flush()


async def stop(process: Process) -> None:
    """End a process in good order; one that does not end in a minute is killed."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        say(f"process {process.pid} does not end: killed")
        process.kill()
        await process.wait()
