"""The control process's end of the link, by hand: for tests of the client."""

import asyncio
from pathlib import Path

from hourwheel.internal.v1 import control_link_pb2 as link
from hourwheel.internal.v1 import control_pb2 as pb
from replication.control_state.state import ControlState
from replication.control_state.state_change import whole
from replication.raft.frames import pack_frame, read_frame

BYTES_MAX = 1 << 20


class ControlPeer:
    """Takes one broker; keeps what it says but pings."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.heard: list[link.BrokerFrame] = []
        self.ping_count = 0
        self.is_answering = self.is_welcoming = True
        self.answer = link.LinkAnswer(result=pb.ControlResult(outcome=pb.CONTROL_OUTCOME_OK))
        self._writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._accepted, self.path)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        try:
            while True:
                frame = link.BrokerFrame.FromString(await read_frame(reader, BYTES_MAX))
                self._take(frame)
        except (EOFError, OSError):
            writer.transport.abort()

    def _take(self, frame: link.BrokerFrame) -> None:
        kind = frame.WhichOneof("frame")
        if kind == "ping":
            self.ping_count += 1
            return
        self.heard.append(frame)
        if kind == "hello" and self.is_welcoming:
            self.say_state(ControlState())
        elif kind == "proposal" and self.is_answering:
            answer = link.LinkAnswer()
            answer.CopyFrom(self.answer)
            answer.call_id = frame.proposal.call_id
            self.say(link.ControlFrame(answer=answer))

    def say(self, frame: link.ControlFrame) -> None:
        assert self._writer is not None
        self._writer.write(pack_frame(frame.SerializeToString()))

    def say_state(self, state: ControlState) -> None:
        self.say(link.ControlFrame(state=whole(state)))

    def hang_up(self) -> None:
        assert self._writer is not None
        self._writer.transport.abort()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._writer is not None:
            self._writer.transport.abort()
