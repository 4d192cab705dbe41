import pytest

from hourwheel import errors
from hourwheel.transport.fork_guard import Home
from tests.support.forking import run_script


def test_home_when_nothing_was_forked() -> None:
    home = Home()
    assert not home.is_elsewhere
    home.enter()
    home.enter()
    assert not home.is_elsewhere


def test_home_when_first_entered_in_the_child() -> None:
    said = run_script("""
        from hourwheel.transport.fork_guard import Home
        home = Home()
        in_child(lambda: (home.enter(), home.enter(), home.is_elsewhere))
        home.enter()
        print(home.is_elsewhere)
    """)
    assert said == ["child (None, None, False)", "False"]


def test_home_when_entered_before_the_fork() -> None:
    said = run_script("""
        from hourwheel.transport.fork_guard import Home
        home = Home()
        home.enter()
        in_child(lambda: home.is_elsewhere)
        in_child(home.enter)
        in_child(lambda: Home().enter())
        home.enter()
        print(home.is_elsewhere)
    """)
    assert said == ["child True", "child Forked", "child None", "False"]


@pytest.mark.parametrize("kind", ["ours", "another's"])
def test_home_when_grpc_was_in_use_at_the_fork(kind: str) -> None:
    said = run_script(
        """
        import asyncio, grpc.aio
        from hourwheel.transport import fork_guard
        async def main():
            channel = grpc.aio.insecure_channel("127.0.0.1:1")
            if sys.argv[1] == "ours":
                fork_guard.note_channel()
            in_child(fork_guard.Home().enter)
            in_child(lambda: in_child(fork_guard.Home().enter))
            fork_guard.Home().enter()
            await channel.close()
        asyncio.run(main())
        gc.collect()
        in_child(fork_guard.Home().enter)  # gRPC's own threads may end later
        """,
        kind,
    )
    assert said == ["child Forked", "child Forked", "child None", "child Forked"]


def test_forked_is_told_from_other_errors() -> None:
    assert errors.BY_REASON["FORKED"] is errors.Forked
    assert not errors.Forked.retriable
