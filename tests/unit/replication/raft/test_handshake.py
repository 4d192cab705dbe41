import pytest

from hourwheel import errors
from hourwheel.internal.v1 import raft_pb2
from replication.raft.handshake import Handshake, Identity, Seal, Session

CLUSTER = b"c" * 16
SECRET = b"a shared secret of some length"
ALL = frozenset({"n1", "n2", "n3"})


def side(
    node_id: str,
    *,
    secret: bytes | None = SECRET,
    certified: frozenset[str] | None = None,
    cluster: bytes = CLUSTER,
    nonce: bytes = b"",
) -> Handshake:
    return Handshake(
        Identity(cluster, node_id),
        ALL - {node_id},
        (nonce or node_id.encode()).ljust(32, b"."),
        secret=secret,
        certified=certified,
    )


def shake(dialler: Handshake, acceptor: Handshake) -> tuple[Session, Session]:
    answer = acceptor.answer(dialler.first("n1"))
    last, at_dialler = dialler.prove(answer)
    return at_dialler, acceptor.finish(last)


def test_both_know_each_other_when_they_know_the_secret() -> None:
    at_dialler, at_acceptor = shake(side("n2"), side("n1"))
    assert (at_dialler.peer_id, at_acceptor.peer_id) == ("n1", "n2")
    for _ in range(3):
        assert at_acceptor.incoming.open(at_dialler.outgoing.close(b"hello")) == b"hello"
        assert at_dialler.incoming.open(at_acceptor.outgoing.close(b"you")) == b"you"


def test_frames_of_one_direction_are_none_of_the_other() -> None:
    at_dialler, _ = shake(side("n2"), side("n1"))
    with pytest.raises(errors.PeerRefused, match="HMAC"):
        at_dialler.incoming.open(at_dialler.outgoing.close(b"hello"))


@pytest.mark.parametrize("what", ["changed", "again", "reordered", "short", "plain"])
def test_frame_is_refused_when_it_is_not_the_next_one(what: str) -> None:
    at_dialler, at_acceptor = shake(side("n2"), side("n1"))
    first, second = (at_dialler.outgoing.close(raw) for raw in (b"first", b"second"))
    if what == "again":
        at_acceptor.incoming.open(first)
    frame = {
        "changed": first[:-1] + b"!",
        "again": first,
        "reordered": second,
        "short": first[:31],
        "plain": b"first",
    }[what]
    with pytest.raises(errors.PeerRefused):
        at_acceptor.incoming.open(frame)


def test_dialler_finds_out_that_the_acceptor_does_not_know_the_secret() -> None:
    with pytest.raises(errors.PeerRefused, match="secret"):
        shake(side("n2"), side("n1", secret=b"another secret, long enough"))


def test_acceptor_finds_out_that_the_dialler_does_not_know_the_secret() -> None:
    acceptor = side("n1")
    acceptor.answer(side("n2").first("n1"))
    bare = raft_pb2.PeerHello.FromString(side("n2").first("n1"))
    for proof in (b"", b"x" * 32):
        bare.proof = proof
        with pytest.raises(errors.PeerRefused, match="secret"):
            acceptor.finish(bare.SerializeToString())


def test_proof_is_worth_nothing_in_another_connection() -> None:
    acceptor = side("n1")
    dialler = side("n2")
    last, _ = dialler.prove(acceptor.answer(dialler.first("n1")))
    fresh = side("n1", nonce=b"fresh")
    fresh.answer(side("n2").first("n1"))
    with pytest.raises(errors.PeerRefused, match="secret"):
        fresh.finish(last)


def test_own_answer_cannot_be_sent_back() -> None:
    acceptor = side("n1")
    answer = acceptor.answer(side("n2").first("n1"))
    with pytest.raises(errors.PeerRefused):
        acceptor.finish(answer)


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        (side("n2", cluster=b"x" * 16).first("n1"), "another cluster"),
        (side("n2").first("n3"), "meant for"),
        (side("n9").first("n1"), "no peer"),
        (side("n1").first("n1"), "no peer"),
        (side("n2", nonce=b"n1").first("n1"), "nonce"),
        (b"\x80\x04pickle", "not a hello"),
        (b"", "version"),
    ],
)
def test_hello_is_refused_when_it_is_not_of_a_peer(hello: bytes, why: str) -> None:
    with pytest.raises(errors.PeerRefused, match=why):
        side("n1").answer(hello)


def test_another_node_cannot_answer() -> None:
    dialler = side("n2")
    first = dialler.first("n1")
    other = side("n3")
    forged = raft_pb2.PeerHello.FromString(first)
    forged.peer_node_id = "n3"
    with pytest.raises(errors.PeerRefused, match="answers for another"):
        dialler.prove(other.answer(forged.SerializeToString()))


def test_certificate_says_who_a_peer_is() -> None:
    tls = {"secret": None}
    dialler = side("n2", certified=frozenset({"n1", "host"}), **tls)
    acceptor = side("n1", certified=frozenset({"n2"}), **tls)
    at_dialler, at_acceptor = shake(dialler, acceptor)
    assert at_acceptor.incoming.open(at_dialler.outgoing.close(b"as it is")) == b"as it is"
    with pytest.raises(errors.PeerRefused, match="certificate"):
        shake(
            side("n2", certified=frozenset({"n1"}), **tls),
            side("n1", certified=frozenset({"n3"}), **tls),
        )
    with pytest.raises(errors.PeerRefused, match="certificate"):
        shake(
            side("n2", certified=frozenset(), **tls),
            side("n1", certified=frozenset({"n2"}), **tls),
        )


def test_one_of_secret_and_certificate_is_there() -> None:
    for secret, certified in ((None, None), (SECRET, frozenset({"n1"}))):
        with pytest.raises(errors.InvariantViolated):
            side("n1", secret=secret, certified=certified)


def test_seal_without_key_leaves_frames_alone() -> None:
    assert Seal(None).open(Seal(None).close(b"x")) == b"x"


def of(
    node_id: str, generation: int, peers: set[str], known: set[str], named: str = ""
) -> Handshake:
    return Handshake(
        Identity(CLUSTER, node_id, generation),
        frozenset(peers),
        node_id.encode().ljust(32, b"."),
        secret=SECRET,
        certified=None,
        known_ids=frozenset(known),
        named_ids=frozenset(named.split()),
    )


def test_who_is_behind_is_told_of_the_generation_where_it_is_or_was_a_member() -> None:
    """n3 has left; n4 is new, and knows n1 by its configuration."""
    member = {"n1", "n2", "n4"}, {"n1", "n2", "n3", "n4"}
    for behind in (of("n3", 0, {"n1", "n2"}, set()), of("n4", 0, {"n1", "n2"}, set())):
        at_dialler, at_acceptor = shake(behind, of("n1", 1, *member))
        assert (at_dialler.generation, at_acceptor.generation) == (1, 0)
    with pytest.raises(errors.PeerRefused, match="no peer"):
        shake(of("n5", 0, {"n1"}, set()), of("n1", 1, *member))
    with pytest.raises(errors.PeerRefused, match="no peer"):
        shake(of("n3", 1, {"n1"}, set()), of("n1", 1, *member))


def test_word_of_a_later_generation_is_taken_from_peers_only() -> None:
    """Else who has left could say that all others have."""
    with pytest.raises(errors.PeerRefused, match="no peer"):
        shake(of("n3", 9, {"n1"}, set()), of("n1", 1, {"n2", "n4"}, {"n1", "n2", "n3", "n4"}))
    at_dialler, _ = shake(of("n2", 2, {"n1"}, set()), of("n1", 1, {"n2", "n4"}, set()))
    assert at_dialler.generation == 1


def test_word_of_a_later_generation_is_taken_from_whom_the_configuration_names() -> None:
    """All whom a voter knows may have left while it was away."""
    behind = of("n1", 1, {"n2", "n3"}, set(), "n4 n5")
    at_dialler, at_acceptor = shake(of("n4", 3, {"n1", "n5"}, set()), behind)
    assert (at_dialler.generation, at_acceptor.generation) == (1, 3)
    for generation in (0, 1):
        with pytest.raises(errors.PeerRefused, match="no peer"):
            shake(of("n4", generation, {"n1"}, set()), of("n1", 1, {"n2"}, set(), "n4"))


def test_inquiry_says_that_it_is_one() -> None:
    dialler, acceptor = side("n2"), side("n1")
    last, at_dialler = dialler.prove(acceptor.answer(dialler.first("n1", is_inquiry=True)))
    assert at_dialler.is_inquiry
    assert acceptor.finish(last).is_inquiry


def test_each_side_hears_whether_the_other_is_blank_and_admits() -> None:
    blank = Handshake(
        Identity(CLUSTER, "n2", is_blank=True, journal_id=b"j" * 16),
        ALL - {"n2"},
        b"n" * 32,
        secret=SECRET,
        certified=None,
    )
    at_dialler, at_acceptor = shake(blank, side("n1"))
    assert (at_dialler.is_blank, at_acceptor.is_blank) == (False, True)
    assert (at_dialler.journal_id, at_acceptor.journal_id) == (b"", b"j" * 16)
    assert at_dialler.admits
    assert at_acceptor.admits
