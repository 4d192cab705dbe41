"""What a list of the cluster's nodes changes. The choice itself: test_endpoints.py."""

from hourwheel import errors
from hourwheel.transport.endpoints import ASK_AGAIN_MS, LEARNED_MAX, Endpoints, Move

A, B, C, D = "a:1", "b:1", "c:1", "d:1"
NOW = 1_000.0
LOST = errors.Unavailable("cut")


def not_master(master: str, epoch: int) -> errors.NotMaster:
    return errors.NotMaster(master_address=master, epoch=epoch)


def three() -> Endpoints:
    """Endpoints A, B and C, of which A is the current one."""
    endpoints = Endpoints([A, B, C])
    assert endpoints.choose(NOW, 0.0) == A
    return endpoints


def test_on_nodes_when_some_are_new_and_some_are_gone() -> None:
    endpoints = Endpoints([A])
    endpoints.on_nodes([A, B, C], B, 7)
    assert endpoints.addresses == (A, B, C)
    endpoints.on_nodes([B, D], B, 7)
    assert endpoints.addresses == (A, B, D)  # A is configured, C was only learned
    endpoints.on_nodes([B, C], C, 6)
    assert endpoints.addresses == (A, B, D)


def test_on_nodes_when_the_current_one_is_forgotten() -> None:
    endpoints = Endpoints([A])
    endpoints.on_failure(A, NOW, not_master(D, 7))
    assert endpoints.choose(NOW, 0.0) == D
    endpoints.on_nodes([A, B], B, 7)
    assert endpoints.choose(NOW, 0.0) == B


def test_on_nodes_when_the_node_is_alone() -> None:
    endpoints = Endpoints([A])
    endpoints.on_nodes([B], B, 7)
    assert endpoints.addresses == (A,)
    endpoints.on_nodes([B, "0.0.0.0:7400", ""], B, 7)
    assert endpoints.addresses == (A,)


def test_on_nodes_when_the_current_one_serves_well_although_it_is_no_master() -> None:
    endpoints = Endpoints([A])
    assert endpoints.choose(NOW, 0.0) == A  # it may be the master by another name, or forward
    endpoints.on_nodes([B, C], B, 7)
    assert endpoints.choose(NOW, 0.0) == A
    endpoints.on_failure(A, NOW, LOST)
    assert endpoints.choose(NOW, 0.9) == B  # the master is the first choice


def test_on_nodes_when_there_is_a_new_master() -> None:
    endpoints = three()
    endpoints.on_nodes([A, B, C], A, 7)
    endpoints.on_nodes([A, B, C], C, 8)
    assert endpoints.choose(NOW, 0.0) == C


def test_learning_when_there_are_too_many() -> None:
    endpoints = Endpoints([A])
    endpoints.on_nodes([f"n{number}:1" for number in range(40)], "n3:1", 7)
    assert len(endpoints.addresses) == 1 + LEARNED_MAX
    for number in range(40):
        named = f"m{number}:1"
        assert endpoints.on_failure(A, NOW, not_master(named, 8 + number)) is Move.AT_ONCE
        assert endpoints.choose(NOW, 0.0) == named
    assert len(endpoints.addresses) == 1 + LEARNED_MAX


def test_is_ask_due_when_there_was_trouble() -> None:
    endpoints = three()
    assert endpoints.is_ask_due(NOW)
    assert not endpoints.is_ask_due(NOW + ASK_AGAIN_MS)
    endpoints.on_failure(A, NOW, LOST)
    assert not endpoints.is_ask_due(NOW + ASK_AGAIN_MS - 1)
    assert endpoints.is_ask_due(NOW + ASK_AGAIN_MS)
    endpoints.on_failure(A, NOW, errors.Overloaded())
    assert not endpoints.is_ask_due(NOW + 2 * ASK_AGAIN_MS)
