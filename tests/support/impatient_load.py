"""A load for one actor: its pauses take no time, and after so many it shall end."""

import asyncio

from chaos.workload import Workload


class ImpatientLoad(Workload):
    """It talks to nobody: the actor gets clients of the test."""

    lists, lists_max = 0, 0
    """Published so far, with a pause behind each; and before the end."""

    @classmethod
    def ending_after(cls, lists_max: int) -> "ImpatientLoad":
        """Always of the same choices."""
        load = cls("127.0.0.1:1", 3)
        load.lists_max = lists_max
        return load

    async def pass_ms(self, duration_ms: float) -> None:
        """Let others run."""
        del duration_ms
        self.lists += 1
        self.is_stopping = self.lists >= self.lists_max
        await asyncio.sleep(0)
