import fcntl
import resource
import select
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from hourwheel import errors
from hourwheel.formats.frames import Frame, cut_frames, pack
from hourwheel.integrations.bridge import Bridge, Target


class Other:
    """The other end: a bridge process that says what the test wants."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._received = bytearray()
        self._frames: list[Frame] = []

    def read(self) -> Frame:
        while not self._frames:
            chunk = self.end.recv(1 << 16)
            assert chunk, "the caller is gone"
            self._received += chunk
            self._frames = cut_frames(self._received)
        return self._frames.pop(0)

    def say(self, *heads: dict[str, object]) -> None:
        self.end.sendall(b"".join(pack(Frame(head)) for head in heads))


@contextmanager
def moved(one: socket.socket, descriptor_min: int) -> Iterator[socket.socket]:
    """The same connection by another descriptor, of at least this number."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], descriptor_min + 64), before[1]))
    try:
        with socket.socket(
            fileno=fcntl.fcntl(one.fileno(), fcntl.F_DUPFD_CLOEXEC, descriptor_min)
        ) as found:
            yield found
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def opened(descriptor_min: int = 0) -> Iterator[tuple[Bridge, Other]]:
    first, its = socket.socketpair()
    with first, its, moved(first, descriptor_min) as ours:
        other = Other(its)
        other.say({"n": 0})
        bridge = Bridge(Target("a:1"), ours)
        assert other.read().head["servers"] == "a:1"
        yield bridge, other
        bridge.close()


def test_each_of_many_threads_has_its_own_answer_whoever_reads() -> None:
    threads, rounds = 8, 25
    with opened() as (bridge, other), ThreadPoolExecutor(threads) as callers:

        def call(thread: int) -> list[int]:
            return [
                bridge.call("size", asked=thread * rounds + at).head["asked"]
                for at in range(rounds)
            ]

        found = [callers.submit(call, thread) for thread in range(threads)]
        for _ in range(rounds):  # the answers come together, the last one asked first
            asked = [other.read() for _ in range(threads)]
            other.say(*({"n": one.head["n"], "asked": one.head["asked"]} for one in asked[::-1]))
        for thread, one in enumerate(found):
            assert one.result() == list(range(thread * rounds, (thread + 1) * rounds))


def test_whoever_waits_reads_on_when_the_reader_has_its_answer_or_no_more_time() -> None:
    with opened() as (bridge, other), ThreadPoolExecutor(3) as callers:
        pushed = callers.submit(bridge.find_pushed, None)
        first = callers.submit(bridge.call, "size")
        second = callers.submit(bridge.call, "size")
        numbers = [other.read().head["n"] for _ in range(2)]
        assert bridge.find_pushed(0.01) is None
        for number in numbers:
            other.say({"n": number})
        assert {first.result().head["n"], second.result().head["n"]} == set(numbers)
        other.say({"tag": 7})
        frame = pushed.result()
        assert frame is not None
        assert frame.head == {"tag": 7}


def test_all_who_wait_are_told_when_the_bridge_process_is_gone_or_the_connection_is_closed() -> (
    None
):
    with opened() as (bridge, other), ThreadPoolExecutor(4) as callers:
        waiting = [callers.submit(bridge.call, "size") for _ in range(4)]
        for _ in waiting:
            other.read()
        other.end.close()
        for one in waiting:
            with pytest.raises(errors.Unavailable):
                one.result()
    with opened() as (bridge, other), ThreadPoolExecutor(4) as callers:
        waiting = [callers.submit(bridge.call, "size") for _ in range(4)]
        for _ in waiting:
            other.read()
        bridge.close()
        for one in waiting:
            with pytest.raises((errors.Cancelled, errors.Unavailable)):
                one.result()


def test_an_exception_of_a_signal_handler_leaves_reading_to_others() -> None:
    class Interrupted(Exception):
        pass

    with opened() as (bridge, other):
        interrupted: list[BaseException] = []

        def interrupt(_number: int, _frame: object) -> None:
            raise Interrupted

        old = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            bridge.call("size")
        except Interrupted as error:
            interrupted.append(error)
        finally:
            signal.signal(signal.SIGALRM, old)
        assert interrupted
        answer: list[Frame] = []
        thread = threading.Thread(target=lambda: answer.append(bridge.call("size")))
        thread.start()
        assert [other.read().head["n"], other.read().head["n"]] == [1, 2]
        other.say({"n": 1}, {"n": 2})
        thread.join()
        assert answer[0].head["n"] == 2


def test_a_program_with_thousands_of_descriptors_has_a_bridge() -> None:
    """`select` knows none above 1,023."""
    with opened(descriptor_min=1_024) as (bridge, other), ThreadPoolExecutor(1) as callers:
        found = callers.submit(bridge.call, "size")
        other.say({"n": other.read().head["n"], "ready": 7})
        assert found.result().head["ready"] == 7


def test_a_bridge_waits_by_select_where_a_library_has_taken_poll_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(select, "poll")
    with opened() as (bridge, other):
        assert bridge.find_pushed(0.01) is None
        other.say({"tag": 7})
        assert bridge.find_pushed(None) is not None
