"""PySyncObj's messages as protobuf, strictly: what is not one of them exactly is refused.

PySyncObj hands its transport dictionaries, and would take any from it; as shipped they travel as
pickles, which run code. Here a message of a peer can only become one of the seven dictionaries
below, with every field checked; commands stay opaque bytes.

An append_entries with a snapshot gets commit_index 0: the follower would else commit entries of its
own log that was not compared with the leader's (B3).
"""

from collections.abc import Callable
from typing import Any, Final

from hourwheel import errors
from hourwheel.internal.v1 import raft_pb2 as pb
from replication.raft.journal_file import COMMAND_BYTES_MAX, Entry

Message = dict[str, Any]
"""As PySyncObj makes and takes it."""

REGULAR: Final = b"\x00"
"""First byte of a command of ours."""
NOOP: Final = b"\x01"
FRAME_BYTES_MAX: Final = 1 << 20
_INT_MAX: Final = (1 << 62) - 1
_FAIL_REASON_MAX: Final = 16


def refuse(why: str) -> errors.InvalidBatch:
    """The error for a frame that is not one."""
    return errors.InvalidBatch(f"a frame of a control process is refused: {why}")


# --- out


def encode(message: Message) -> pb.PeerFrame:
    """A frame of PySyncObj's message.

    Raises:
        InvariantViolated: it uses a message that we have switched off.
    """
    encoder = _ENCODERS.get(message["type"])
    if encoder is None or "transmission" in message:
        errors.violated("PySyncObj sends what we do not carry", type=message["type"])
    return encoder(message)


def _encode_append(message: Message) -> pb.PeerFrame:
    append = pb.RaftAppendEntries(term=message["term"], commit_index=message["commit_index"])
    if "prevLogIdx" in message:
        # None: the follower asked for what this log does not have yet. No log matches that place.
        index = message["prevLogIdx"]
        append.previous.index = _INT_MAX if index is None else index
        append.previous.term = message["prevLogTerm"] or 0
        for command, index, term in message["entries"]:
            append.entries.add(command=command, index=index, term=term)
    elif message["serialized"]:
        data, is_first, is_last = message["serialized"]
        append.snapshot.data = data
        append.snapshot.is_first = is_first
        append.snapshot.is_last = is_last
    return pb.PeerFrame(append_entries=append)


def _encode_response(message: Message) -> pb.PeerFrame:
    response = pb.RaftApplyCommandResponse(request_id=message["request_id"])
    if message.get("error") is not None:
        response.error = message["error"]
    else:
        response.log_index = message["log_idx"]
        response.log_term = message["log_term"]
    return pb.PeerFrame(apply_command_response=response)


def _encode_command(message: Message) -> pb.PeerFrame:
    return pb.PeerFrame(
        apply_command=pb.RaftApplyCommand(
            command=message["command"], request_id=message.get("request_id")
        )
    )


_ENCODERS: Final[dict[str, Callable[[Message], pb.PeerFrame]]] = {
    "request_vote": lambda m: pb.PeerFrame(
        request_vote=pb.RaftRequestVote(
            term=m["term"],
            last_log_index=m["last_log_index"],
            last_log_term=m["last_log_term"],
        )
    ),
    "response_vote": lambda m: pb.PeerFrame(response_vote=pb.RaftResponseVote(term=m["term"])),
    "append_entries": _encode_append,
    "next_node_idx": lambda m: pb.PeerFrame(
        next_node_idx=pb.RaftNextNodeIdx(
            next_node_idx=m["next_node_idx"],
            reset=m["reset"],
            success=m["success"],
            term=m["term"],
        )
    ),
    "apply_command": _encode_command,
    "apply_command_response": _encode_response,
    "timeout_now": lambda m: pb.PeerFrame(timeout_now=pb.RaftTimeoutNow(term=m["term"])),
}


# --- in


def parse(raw: bytes) -> pb.PeerFrame:
    """A frame of bytes.

    Raises:
        InvalidBatch: it is none, or says nothing that we know.
    """
    if len(raw) > FRAME_BYTES_MAX:
        raise refuse(f"{len(raw)} bytes")
    try:
        frame = pb.PeerFrame.FromString(raw)
    except Exception as error:  # protobuf's DecodeError has no public home
        raise refuse("not a frame") from error
    if frame.WhichOneof("frame") is None:
        raise refuse("of a kind that is not known")
    return frame


def decode(frame: pb.PeerFrame) -> Message:
    """PySyncObj's message of a frame.

    Raises:
        InvalidBatch: a field is missing, or is not what it may be.
    """
    kind = frame.WhichOneof("frame")
    decoder = _DECODERS.get(kind or "")
    if decoder is None:
        raise refuse(f"{kind} is no message of Raft")
    return {"type": kind, **decoder(getattr(frame, kind or ""))}


def _number(value: int) -> int:
    if value > _INT_MAX:
        raise refuse("a number is out of range")
    return value


def check_command(command: bytes) -> bytes:
    """A command of ours, as a peer may send it."""
    if command[:1] != REGULAR or len(command) > COMMAND_BYTES_MAX:
        raise refuse("not a command")
    return command


def _entry(data: pb.RaftEntry) -> Entry:
    if data.command != NOOP:
        check_command(data.command)
    return Entry(data.command, _number(data.index), _number(data.term))


def _decode_append(data: pb.RaftAppendEntries) -> Message:
    message: Message = {"term": _number(data.term), "commit_index": 0}
    if not data.HasField("previous"):
        if data.entries:
            raise refuse("entries without a place")
        chunk = data.snapshot
        has_chunk = data.HasField("snapshot")
        return {
            **message,
            "serialized": (chunk.data, chunk.is_first, chunk.is_last) if has_chunk else None,
        }
    if data.HasField("snapshot"):
        raise refuse("entries and a snapshot")
    entries = [_entry(each) for each in data.entries]
    index, term = _number(data.previous.index), _number(data.previous.term)
    last_term = term
    for at, entry in enumerate(entries, index + 1):
        if entry.index != at or not last_term <= entry.term <= data.term:
            raise refuse("entries do not follow each other")
        last_term = entry.term
    return {
        **message,
        "commit_index": _number(data.commit_index),
        "entries": entries,
        "prevLogIdx": index,
        "prevLogTerm": term,
    }


def _decode_command(data: pb.RaftApplyCommand) -> Message:
    message: Message = {"command": check_command(data.command)}
    if data.HasField("request_id"):
        message["request_id"] = data.request_id
    return message


def _decode_response(data: pb.RaftApplyCommandResponse) -> Message:
    if data.HasField("error"):
        if not 0 < data.error <= _FAIL_REASON_MAX:
            raise refuse("no reason of PySyncObj")
        return {"request_id": data.request_id, "error": data.error}
    return {
        "request_id": data.request_id,
        "log_idx": _number(data.log_index),
        "log_term": _number(data.log_term),
    }


def _decode_next(data: pb.RaftNextNodeIdx) -> Message:
    if data.next_node_idx < 1:
        raise refuse("indexes begin with 1")
    return {
        "next_node_idx": _number(data.next_node_idx),
        "reset": data.reset,
        "success": data.success,
        "term": _number(data.term),
    }


_DECODERS: Final[dict[str, Callable[[Any], Message]]] = {
    "request_vote": lambda d: {
        "term": _number(d.term),
        "last_log_index": _number(d.last_log_index),
        "last_log_term": _number(d.last_log_term),
    },
    "response_vote": lambda d: {"term": _number(d.term)},
    "append_entries": _decode_append,
    "next_node_idx": _decode_next,
    "apply_command": _decode_command,
    "apply_command_response": _decode_response,
    "timeout_now": lambda d: {"term": _number(d.term)},
}
