from typing import Any

import pytest

from hourwheel import errors
from hourwheel.internal.v1 import control_link_pb2, raft_pb2
from replication.raft.codec import FRAME_BYTES_MAX, decode, encode, parse
from replication.raft.journal_file import COMMAND_BYTES_MAX, Entry

ENTRIES = [Entry(b"\x01", 5, 2), Entry(b"\x00do", 6, 3)]
MESSAGES: list[dict[str, Any]] = [
    {"type": "request_vote", "term": 3, "last_log_index": 9, "last_log_term": 2},
    {"type": "response_vote", "term": 3},
    {
        "type": "append_entries",
        "term": 3,
        "commit_index": 4,
        "entries": ENTRIES,
        "prevLogIdx": 4,
        "prevLogTerm": 2,
    },
    {
        "type": "append_entries",
        "term": 3,
        "commit_index": 4,
        "entries": [],
        "prevLogIdx": 4,
        "prevLogTerm": 2,
    },
    {"type": "append_entries", "term": 3, "commit_index": 0, "serialized": (b"abc", True, False)},
    {"type": "append_entries", "term": 3, "commit_index": 0, "serialized": None},
    {"type": "next_node_idx", "next_node_idx": 7, "reset": True, "success": False, "term": 3},
    {"type": "apply_command", "command": b"\x00do", "request_id": 0},
    {"type": "apply_command", "command": b"\x00do"},
    {"type": "apply_command_response", "request_id": 1, "error": 4},
    {"type": "apply_command_response", "request_id": 1, "log_idx": 8, "log_term": 3},
    {"type": "timeout_now", "term": 3},
]


@pytest.mark.parametrize("message", MESSAGES)
def test_message_is_the_same_when_it_has_travelled(message: dict[str, Any]) -> None:
    assert decode(parse(encode(message).SerializeToString())) == message


def test_commit_index_does_not_travel_with_a_snapshot() -> None:
    message = {**MESSAGES[4], "commit_index": 99}
    assert decode(encode(message))["commit_index"] == 0


def test_place_that_the_leader_does_not_have_matches_no_log() -> None:
    message = {**MESSAGES[3], "prevLogIdx": None, "prevLogTerm": None}
    assert decode(encode(message))["prevLogIdx"] > 1 << 60


@pytest.mark.parametrize(
    "message",
    [{"type": "add"}, {**MESSAGES[2], "transmission": "start", "data": b""}],
)
def test_message_that_is_switched_off_is_a_bug(message: dict[str, Any]) -> None:
    with pytest.raises(errors.InvariantViolated):
        encode(message)


def append(**changes: Any) -> raft_pb2.PeerFrame:
    frame = encode(MESSAGES[2])
    for name, value in changes.items():
        setattr(frame.append_entries, name, value)
    return frame


def entry(at: int, **changes: Any) -> raft_pb2.PeerFrame:
    frame = encode(MESSAGES[2])
    for name, value in changes.items():
        setattr(frame.append_entries.entries[at], name, value)
    return frame


def both() -> raft_pb2.PeerFrame:
    frame = append()
    frame.append_entries.snapshot.data = b"x"
    return frame


def placeless() -> raft_pb2.PeerFrame:
    frame = append()
    frame.append_entries.ClearField("previous")
    return frame


@pytest.mark.parametrize(
    "frame",
    [
        raft_pb2.PeerFrame(report=control_link_pb2.NodeReport()),
        entry(0, command=b""),
        entry(0, command=b"\x02member"),
        entry(0, command=b"\x01more"),
        entry(1, command=b"\x00" + bytes(COMMAND_BYTES_MAX)),
        entry(1, index=8),
        entry(1, term=1),
        entry(1, term=4),
        append(commit_index=1 << 63),
        append(term=1 << 63),
        both(),
        placeless(),
        raft_pb2.PeerFrame(apply_command=raft_pb2.RaftApplyCommand(command=b"\x03version")),
        raft_pb2.PeerFrame(apply_command=raft_pb2.RaftApplyCommand(command=b"")),
        raft_pb2.PeerFrame(next_node_idx=raft_pb2.RaftNextNodeIdx()),
        raft_pb2.PeerFrame(
            apply_command_response=raft_pb2.RaftApplyCommandResponse(request_id=1, error=0)
        ),
    ],
)
def test_frame_is_refused_when_it_is_not_exactly_a_message(frame: raft_pb2.PeerFrame) -> None:
    with pytest.raises(errors.InvalidBatch):
        decode(parse(frame.SerializeToString()))


@pytest.mark.parametrize("raw", [b"", b"\xff\xff", b"\x80\x04}", bytes(FRAME_BYTES_MAX + 1)])
def test_bytes_are_refused_when_they_are_no_frame(raw: bytes) -> None:
    with pytest.raises(errors.InvalidBatch):
        parse(raw)
