from hourwheel.internal.v1 import control_link_pb2 as _control_link_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PeerHello(_message.Message):
    __slots__ = ("version", "cluster_id", "node_id", "peer_node_id", "nonce", "proof", "generation", "is_inquiry", "is_blank", "journal_id", "admits")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PEER_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    IS_INQUIRY_FIELD_NUMBER: _ClassVar[int]
    IS_BLANK_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_ID_FIELD_NUMBER: _ClassVar[int]
    ADMITS_FIELD_NUMBER: _ClassVar[int]
    version: int
    cluster_id: bytes
    node_id: str
    peer_node_id: str
    nonce: bytes
    proof: bytes
    generation: int
    is_inquiry: bool
    is_blank: bool
    journal_id: bytes
    admits: bool
    def __init__(self, version: _Optional[int] = ..., cluster_id: _Optional[bytes] = ..., node_id: _Optional[str] = ..., peer_node_id: _Optional[str] = ..., nonce: _Optional[bytes] = ..., proof: _Optional[bytes] = ..., generation: _Optional[int] = ..., is_inquiry: bool = ..., is_blank: bool = ..., journal_id: _Optional[bytes] = ..., admits: bool = ...) -> None: ...

class PeerFrame(_message.Message):
    __slots__ = ("request_vote", "response_vote", "append_entries", "next_node_idx", "apply_command", "apply_command_response", "timeout_now", "report", "generation_part", "admission")
    REQUEST_VOTE_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_VOTE_FIELD_NUMBER: _ClassVar[int]
    APPEND_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_NODE_IDX_FIELD_NUMBER: _ClassVar[int]
    APPLY_COMMAND_FIELD_NUMBER: _ClassVar[int]
    APPLY_COMMAND_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_NOW_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_PART_FIELD_NUMBER: _ClassVar[int]
    ADMISSION_FIELD_NUMBER: _ClassVar[int]
    request_vote: RaftRequestVote
    response_vote: RaftResponseVote
    append_entries: RaftAppendEntries
    next_node_idx: RaftNextNodeIdx
    apply_command: RaftApplyCommand
    apply_command_response: RaftApplyCommandResponse
    timeout_now: RaftTimeoutNow
    report: _control_link_pb2.NodeReport
    generation_part: GenerationPart
    admission: PeerAdmission
    def __init__(self, request_vote: _Optional[_Union[RaftRequestVote, _Mapping]] = ..., response_vote: _Optional[_Union[RaftResponseVote, _Mapping]] = ..., append_entries: _Optional[_Union[RaftAppendEntries, _Mapping]] = ..., next_node_idx: _Optional[_Union[RaftNextNodeIdx, _Mapping]] = ..., apply_command: _Optional[_Union[RaftApplyCommand, _Mapping]] = ..., apply_command_response: _Optional[_Union[RaftApplyCommandResponse, _Mapping]] = ..., timeout_now: _Optional[_Union[RaftTimeoutNow, _Mapping]] = ..., report: _Optional[_Union[_control_link_pb2.NodeReport, _Mapping]] = ..., generation_part: _Optional[_Union[GenerationPart, _Mapping]] = ..., admission: _Optional[_Union[PeerAdmission, _Mapping]] = ...) -> None: ...

class PeerAdmission(_message.Message):
    __slots__ = ("is_known",)
    IS_KNOWN_FIELD_NUMBER: _ClassVar[int]
    is_known: bool
    def __init__(self, is_known: bool = ...) -> None: ...

class GenerationPart(_message.Message):
    __slots__ = ("generation", "data", "digest")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    generation: int
    data: bytes
    digest: bytes
    def __init__(self, generation: _Optional[int] = ..., data: _Optional[bytes] = ..., digest: _Optional[bytes] = ...) -> None: ...

class RaftRequestVote(_message.Message):
    __slots__ = ("term", "last_log_index", "last_log_term")
    TERM_FIELD_NUMBER: _ClassVar[int]
    LAST_LOG_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_LOG_TERM_FIELD_NUMBER: _ClassVar[int]
    term: int
    last_log_index: int
    last_log_term: int
    def __init__(self, term: _Optional[int] = ..., last_log_index: _Optional[int] = ..., last_log_term: _Optional[int] = ...) -> None: ...

class RaftResponseVote(_message.Message):
    __slots__ = ("term",)
    TERM_FIELD_NUMBER: _ClassVar[int]
    term: int
    def __init__(self, term: _Optional[int] = ...) -> None: ...

class RaftEntry(_message.Message):
    __slots__ = ("command", "index", "term")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    command: bytes
    index: int
    term: int
    def __init__(self, command: _Optional[bytes] = ..., index: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class RaftLogPlace(_message.Message):
    __slots__ = ("index", "term")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    index: int
    term: int
    def __init__(self, index: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class RaftSnapshotChunk(_message.Message):
    __slots__ = ("data", "is_first", "is_last")
    DATA_FIELD_NUMBER: _ClassVar[int]
    IS_FIRST_FIELD_NUMBER: _ClassVar[int]
    IS_LAST_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    is_first: bool
    is_last: bool
    def __init__(self, data: _Optional[bytes] = ..., is_first: bool = ..., is_last: bool = ...) -> None: ...

class RaftAppendEntries(_message.Message):
    __slots__ = ("term", "commit_index", "previous", "entries", "snapshot")
    TERM_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    term: int
    commit_index: int
    previous: RaftLogPlace
    entries: _containers.RepeatedCompositeFieldContainer[RaftEntry]
    snapshot: RaftSnapshotChunk
    def __init__(self, term: _Optional[int] = ..., commit_index: _Optional[int] = ..., previous: _Optional[_Union[RaftLogPlace, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[RaftEntry, _Mapping]]] = ..., snapshot: _Optional[_Union[RaftSnapshotChunk, _Mapping]] = ...) -> None: ...

class RaftNextNodeIdx(_message.Message):
    __slots__ = ("next_node_idx", "reset", "success", "term")
    NEXT_NODE_IDX_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    next_node_idx: int
    reset: bool
    success: bool
    term: int
    def __init__(self, next_node_idx: _Optional[int] = ..., reset: bool = ..., success: bool = ..., term: _Optional[int] = ...) -> None: ...

class RaftApplyCommand(_message.Message):
    __slots__ = ("command", "request_id")
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    command: bytes
    request_id: int
    def __init__(self, command: _Optional[bytes] = ..., request_id: _Optional[int] = ...) -> None: ...

class RaftApplyCommandResponse(_message.Message):
    __slots__ = ("request_id", "error", "log_index", "log_term")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LOG_INDEX_FIELD_NUMBER: _ClassVar[int]
    LOG_TERM_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    error: int
    log_index: int
    log_term: int
    def __init__(self, request_id: _Optional[int] = ..., error: _Optional[int] = ..., log_index: _Optional[int] = ..., log_term: _Optional[int] = ...) -> None: ...

class RaftTimeoutNow(_message.Message):
    __slots__ = ("term",)
    TERM_FIELD_NUMBER: _ClassVar[int]
    term: int
    def __init__(self, term: _Optional[int] = ...) -> None: ...

class RaftMeta(_message.Message):
    __slots__ = ("term", "voted_for", "commit_index", "node_id", "began_blank", "journal_id", "met")
    class MetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    TERM_FIELD_NUMBER: _ClassVar[int]
    VOTED_FOR_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    BEGAN_BLANK_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_ID_FIELD_NUMBER: _ClassVar[int]
    MET_FIELD_NUMBER: _ClassVar[int]
    term: int
    voted_for: str
    commit_index: int
    node_id: str
    began_blank: bool
    journal_id: bytes
    met: _containers.ScalarMap[str, bytes]
    def __init__(self, term: _Optional[int] = ..., voted_for: _Optional[str] = ..., commit_index: _Optional[int] = ..., node_id: _Optional[str] = ..., began_blank: bool = ..., journal_id: _Optional[bytes] = ..., met: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class RaftSnapshot(_message.Message):
    __slots__ = ("state", "last", "previous", "is_installed", "padding")
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    IS_INSTALLED_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    state: bytes
    last: RaftEntry
    previous: RaftEntry
    is_installed: bool
    padding: bytes
    def __init__(self, state: _Optional[bytes] = ..., last: _Optional[_Union[RaftEntry, _Mapping]] = ..., previous: _Optional[_Union[RaftEntry, _Mapping]] = ..., is_installed: bool = ..., padding: _Optional[bytes] = ...) -> None: ...
