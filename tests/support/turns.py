"""How much work each turn of an event loop does: counted, so that no machine is too busy for it.

with Turns() as turns:
    ...                       # what runs in the current loop meanwhile is counted
assert turns.most_lines.lines < 8_000, turns.most_lines

Counted are the lines of the project's code that a callback executes, those of comprehensions once
for each item. What C code does with ten thousands of items, such as copying a dict, is not seen;
for that there is the processor time of the loop's thread, whatever else the machine does.
"""

import asyncio
import sys
import time
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, NamedTuple, Self
from unittest import mock

_ROOT: Final = Path(__file__).resolve().parents[2]
_ROOMS: Final = ("hourwheel", "storage", "timewheel", "filters", "replication", "node")


class Turn(NamedTuple):
    """What one callback of the loop did."""

    lines: int = 0
    cpu_s: float = 0.0
    what: str = ""
    where: str = ""
    """The function that executed most of the lines."""


class Turns:
    """See the top of this file. One at a time, in one thread."""

    def __init__(self) -> None:
        self.most_lines = Turn()
        self.most_cpu = Turn()
        self.count = 0
        self._is_ours: dict[CodeType, bool] = {}
        self._lines: dict[CodeType, int] = {}

    def __enter__(self) -> Self:
        inner = vars(asyncio.Handle)["_run"]

        def run(handle: asyncio.Handle) -> None:
            self._lines.clear()
            begun_s = time.thread_time()
            inner(handle)
            self._note(handle, time.thread_time() - begun_s)

        self._patch = mock.patch.object(asyncio.Handle, "_run", run)
        self._patch.start()
        sys.settrace(self._on_call)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.settrace(None)
        self._patch.stop()

    def _note(self, handle: asyncio.Handle, cpu_s: float) -> None:
        lines = sum(self._lines.values())
        self.count += 1
        if lines <= self.most_lines.lines and cpu_s <= self.most_cpu.cpu_s:
            return
        code = max(self._lines, key=self._lines.__getitem__, default=None)
        where = "" if code is None else f"{Path(code.co_filename).name}:{code.co_qualname}"
        turn = Turn(lines, cpu_s, repr(handle)[:400], where)
        self.most_lines = max(self.most_lines, turn)
        self.most_cpu = max(self.most_cpu, turn, key=lambda one: one.cpu_s)

    def _on_call(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        is_ours = self._is_ours.get(code)
        if is_ours is None:
            path = Path(code.co_filename)
            is_ours = path.is_relative_to(_ROOT) and path.relative_to(_ROOT).parts[0] in _ROOMS
            self._is_ours[code] = is_ours
        return self._on_line if is_ours else None

    def _on_line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            code = frame.f_code
            self._lines[code] = self._lines.get(code, 0) + 1
        return self._on_line
