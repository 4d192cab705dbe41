"""How two control processes find out that they talk to each other, and to no other.

Pure: bytes in, bytes out. Both sides send a PeerHello; the accepting side answers the dialling
one's, then the dialling one proves itself:

    dialler   -> acceptor   hello: version, cluster, from, to, nonce
    acceptor  -> dialler    the same, and its proof
    dialler   -> acceptor   the same as before, and its proof

With a shared secret a proof is HMAC-SHA256 over both hellos, and each side gets a key of its own
from the secret and both nonces. Every later frame carries an HMAC over its number and its bytes: it
cannot be forged, repeated, left out or reordered. Nothing is hidden, though, and the secret
proves only membership, not which member: this is for loopback. Over TLS there are no proofs; who a
peer is stands in its certificate, and must be who it says.
"""

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final, NamedTuple

from hourwheel import errors
from hourwheel.internal.v1 import raft_pb2 as pb
from hourwheel.types import NodeId

PROTOCOL_VERSION: Final = 1
NONCE_BYTES: Final = 32
MAC_BYTES: Final = 32
HELLO_BYTES_MAX: Final = 1_024
"""All that is read from a peer before it has proved itself."""
SECRET_BYTES_MIN: Final = 16


class Identity(NamedTuple):
    """Who one is."""

    cluster_id: bytes
    node_id: NodeId
    generation: int = 0
    """Of the voters that one is, or wants to be, one of."""
    is_blank: bool = False
    """One began with nothing, and has taken no part in it: see replication/raft/admission.py."""
    journal_id: bytes = b""
    """Of one's journal."""


class Seal:
    """Marks outgoing frames of one direction, or checks incoming ones."""

    def __init__(self, key: bytes | None) -> None:
        """Without a key (over TLS) frames go as they are."""
        self._key = key
        self._number = 0

    def _mac(self, raw: bytes) -> bytes:
        numbered = self._number.to_bytes(8, "little") + raw
        self._number += 1
        return hmac.digest(self._key or b"", numbered, "sha256")

    def close(self, raw: bytes) -> bytes:
        """The frame as it is sent."""
        return raw if self._key is None else self._mac(raw) + raw

    def open(self, raw: bytes) -> bytes:
        """The frame that was sent.

        Raises:
            PeerRefused: not by who has the key, or not the next one.
        """
        if self._key is None:
            return raw
        mac, frame = raw[:MAC_BYTES], raw[MAC_BYTES:]
        if len(mac) < MAC_BYTES or not hmac.compare_digest(mac, self._mac(frame)):
            raise errors.PeerRefused("a frame fails its HMAC")
        return frame


@dataclass(frozen=True)
class Session:
    """A connection whose other side is known."""

    peer_id: NodeId
    outgoing: Seal
    incoming: Seal
    generation: int = 0
    """The peer's. Only where it is one's own does the connection carry messages of Raft."""
    is_inquiry: bool = False
    """The peer only asks whether there is a later generation."""
    is_blank: bool = False
    """The peer began with nothing, and has taken no part."""
    journal_id: bytes = b""
    """Of the peer's journal; empty: it has none, or does not say."""
    admits: bool = False
    """The peer says whether it knows those who are blank. Older ones do not."""


class Handshake:
    """One side of it. `secret` None: over TLS, and `certified` says who the peer may be."""

    def __init__(
        self,
        identity: Identity,
        peer_ids: frozenset[NodeId],
        nonce: bytes,
        *,
        secret: bytes | None,
        certified: frozenset[str] | None,
        known_ids: frozenset[NodeId] = frozenset(),
        named_ids: frozenset[NodeId] = frozenset(),
    ) -> None:
        """Exactly one of `secret` and `certified` is None.

        `known_ids`: who is or was a member: hears of this generation, where theirs is earlier.
        `named_ids`: by the configuration; they are believed to be of a later generation.
        """
        errors.invariant((secret is None) != (certified is None), "a secret or a certificate")
        errors.invariant(len(nonce) == NONCE_BYTES, "a nonce has 32 bytes")
        self._identity = identity
        self._peer_ids = peer_ids
        self._known_ids, self._named_ids = known_ids, named_ids
        self._nonce = nonce
        self._secret = secret
        self._certified = certified
        self._dialler: pb.PeerHello | None = None
        self._acceptor: pb.PeerHello | None = None

    # --- the dialling side

    def first(self, peer_id: NodeId, *, is_inquiry: bool = False) -> bytes:
        """The hello that opens."""
        self._dialler = self._hello(peer_id)
        self._dialler.is_inquiry = is_inquiry
        return self._dialler.SerializeToString()

    def prove(self, answer: bytes) -> tuple[bytes, Session]:
        """Judge the acceptor's hello; the last hello, and the session.

        Raises:
            PeerRefused: it is not who was dialled.
        """
        hello = self._parse_hello(answer)
        dialler = self._dialler
        if dialler is None or hello.node_id != dialler.peer_node_id:
            raise errors.PeerRefused(f"{hello.node_id!r} answers for another node")
        self._acceptor = _unproved(hello)
        self._check_proof(hello, b"acceptor")
        last = pb.PeerHello()
        last.CopyFrom(dialler)
        last.proof = self._proof(b"dialler")
        outgoing, incoming = self._key(b"dialler"), self._key(b"acceptor")
        return last.SerializeToString(), Session(
            NodeId(hello.node_id),
            Seal(outgoing),
            Seal(incoming),
            hello.generation,
            dialler.is_inquiry,
            hello.is_blank,
            hello.journal_id,
            hello.admits,
        )

    # --- the accepting side

    def answer(self, first: bytes) -> bytes:
        """Judge the dialler's first hello; ours.

        Raises:
            PeerRefused: not a known node, or not for us.
        """
        self._dialler = _unproved(self._parse_hello(first))
        self._acceptor = self._hello(NodeId(self._dialler.node_id))
        hello = pb.PeerHello()
        hello.CopyFrom(self._acceptor)
        hello.proof = self._proof(b"acceptor")
        return hello.SerializeToString()

    def finish(self, last: bytes) -> Session:
        """Judge the dialler's proof.

        Raises:
            PeerRefused: it has none.
        """
        hello = self._parse_hello(last)
        if _unproved(hello) != self._dialler:
            raise errors.PeerRefused("the second hello is of another")
        self._check_proof(hello, b"dialler")
        outgoing, incoming = self._key(b"acceptor"), self._key(b"dialler")
        return Session(
            NodeId(hello.node_id),
            Seal(outgoing),
            Seal(incoming),
            hello.generation,
            hello.is_inquiry,
            hello.is_blank,
            hello.journal_id,
            hello.admits,
        )

    # --- both

    def _hello(self, peer_id: NodeId) -> pb.PeerHello:
        return pb.PeerHello(
            version=PROTOCOL_VERSION,
            cluster_id=self._identity.cluster_id,
            node_id=self._identity.node_id,
            peer_node_id=peer_id,
            nonce=self._nonce,
            generation=self._identity.generation,
            is_blank=self._identity.is_blank,
            journal_id=self._identity.journal_id,
            admits=True,
        )

    def _parse_hello(self, raw: bytes) -> pb.PeerHello:
        try:
            hello = pb.PeerHello.FromString(raw)
        except Exception as error:  # protobuf's DecodeError has no public home
            raise errors.PeerRefused("not a hello") from error
        if hello.version != PROTOCOL_VERSION:
            raise errors.PeerRefused(f"version {hello.version} of the protocol is not known")
        if hello.cluster_id != self._identity.cluster_id:
            raise errors.PeerRefused("a node of another cluster")
        if hello.peer_node_id != self._identity.node_id:
            raise errors.PeerRefused(f"meant for {hello.peer_node_id!r}")
        known_ids = self._peer_ids
        if hello.generation < self._identity.generation:
            known_ids |= self._known_ids
        elif hello.generation > self._identity.generation:
            known_ids |= self._named_ids
        if hello.node_id not in known_ids:
            raise errors.PeerRefused(f"{hello.node_id!r} is no peer")
        if self._certified is not None and hello.node_id not in self._certified:
            raise errors.PeerRefused(f"the certificate is not {hello.node_id!r}'s")
        if len(hello.nonce) != NONCE_BYTES or hello.nonce == self._nonce:
            raise errors.PeerRefused("no nonce of its own")
        return hello

    def _transcript(self) -> bytes:
        dialler = self._dialler or pb.PeerHello()
        acceptor = self._acceptor or pb.PeerHello()
        parts = [each.SerializeToString(deterministic=True) for each in (dialler, acceptor)]
        return hashlib.sha256(b"".join(len(p).to_bytes(4, "little") + p for p in parts)).digest()

    def _keyed(self, label: bytes, role: bytes) -> bytes:
        message = b"hourwheel control 1 " + label + b" " + role + self._transcript()
        return hmac.digest(self._secret or b"", message, "sha256")

    def _proof(self, role: bytes) -> bytes:
        return self._keyed(b"proof", role) if self._secret is not None else b""

    def _check_proof(self, hello: pb.PeerHello, role: bytes) -> None:
        if not hmac.compare_digest(hello.proof, self._proof(role)):
            raise errors.PeerRefused(f"{hello.node_id!r} does not know the secret")

    def _key(self, role: bytes) -> bytes | None:
        return self._keyed(b"key", role) if self._secret is not None else None


def _unproved(hello: pb.PeerHello) -> pb.PeerHello:
    bare = pb.PeerHello()
    bare.CopyFrom(hello)
    bare.ClearField("proof")
    return bare
