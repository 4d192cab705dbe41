"""The commands of backups, run in this process: what they print."""

import asyncio
import json
from typing import Any

import pytest

from node.tools.backup import command, restore_command


class Commands:
    """Runs commands in threads of this process: what they print with --json."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def backup(self, *arguments: object) -> list[dict[str, Any]]:
        return await self._run(command.main, arguments)

    async def restore(self, *arguments: object) -> dict[str, Any]:
        (answer,) = await self._run(restore_command.main, arguments)
        return answer

    async def _run(self, main: Any, arguments: tuple[object, ...]) -> list[dict[str, Any]]:
        code = await asyncio.to_thread(main, [*map(str, arguments), "--json"])
        found = self._capsys.readouterr()
        assert code == 0, found.err
        return [json.loads(line) for line in found.out.splitlines()]
