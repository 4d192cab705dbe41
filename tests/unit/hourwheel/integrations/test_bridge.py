import asyncio
import fcntl
import gc
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from hourwheel import errors
from hourwheel.formats.frames import Frame, cut_frames, pack
from hourwheel.integrations.bridge import PYTHON_VARIABLE, Bridge, Target, find_python
from tests.support.eventually import until
from tests.unit.hourwheel.integrations.conftest import LocalBridge


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


def is_readable(one: socket.socket) -> bool:
    return bool(select.select([one], [], [], 0)[0])


async def test_a_caller_that_sends_and_does_not_read_is_read_all_the_same(
    local: LocalBridge,
) -> None:
    """Its pushes fill the connection, and it has one thread, which publishes."""
    count, body = 80, b"x" * 16_000
    local.node.add_topic("pushed", *[body] * count)
    ours, its = socket.socketpair()
    its.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    await local.serve(its)
    bridge = await asyncio.to_thread(Bridge, local.target, ours)
    try:
        subscribe = {"consumer": 1, "channel": 1, "topic": "pushed", "group": "g"}
        await asyncio.to_thread(bridge.call, "subscribe", is_temporary=False, **subscribe)
        await until(lambda: is_readable(ours))
        for _ in range(count):  # each push takes a few turns, until one of them waits
            await asyncio.sleep(0)
        publish = {"topic": "sent", "due_ms": None, "expire_after_ms": None, "key": ""}
        async with asyncio.timeout(30):
            await asyncio.to_thread(bridge.call, "publish", b"y" * 3_000_000, priority=0, **publish)
        for _ in range(count):
            found = await asyncio.to_thread(bridge.find_pushed, 30)
            assert found is not None
            assert found.body == body
    finally:
        bridge.close()
    assert sum(one.topic == "sent" for one in local.node.messages) == 1


def test_each_of_many_threads_takes_a_push_of_its_own() -> None:
    count, interval_s = 2_000, sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with opened() as (bridge, other), ThreadPoolExecutor(8) as takers:
            waiting = [takers.submit(bridge.find_pushed, 30) for _ in range(count)]
            for tag in range(count):
                other.say({"tag": tag})
            found = [one.result() for one in waiting]
    finally:
        sys.setswitchinterval(interval_s)
    assert sorted(one.head["tag"] for one in found if one is not None) == list(range(count))


def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    class Interrupted(Exception):
        pass

    def interrupt(_number: int, _frame: object) -> None:
        raise Interrupted

    with opened() as (bridge, other):
        old = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Interrupted):
                bridge.call("size")
        finally:
            signal.signal(signal.SIGALRM, old)
        other.say({"n": 1, "body": "late"}, {"tag": 7})
        frame = bridge.find_pushed(30)
        assert frame is not None
        assert frame.head == {"tag": 7}
        with ThreadPoolExecutor(1) as callers:
            found = callers.submit(bridge.call, "size")
            assert [other.read().head["n"], other.read().head["n"]] == [1, 2]
            other.say({"n": 2, "ready": 3})
            assert found.result().head["ready"] == 3
        kept = [one for one in gc.get_objects() if isinstance(one, Frame) and one.head.get("body")]
        assert not kept


def test_the_interpreter_is_found_where_python_is_embedded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    assert find_python() == sys.executable
    monkeypatch.setattr(sys, "executable", "/usr/bin/uwsgi")
    found = find_python()
    said = subprocess.check_output([found, "-c", "import sys; print(sys.prefix)"], text=True)
    assert said.strip() == sys.prefix
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(errors.FailedPrecondition, match=PYTHON_VARIABLE):
        find_python()
    monkeypatch.setenv(PYTHON_VARIABLE, str(tmp_path / "no_python"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(errors.FailedPrecondition, match="no_python cannot be started"):
        Bridge(Target("127.0.0.1:1"))


def test_a_bridge_process_outlives_the_signals_of_a_stop_and_ends_when_nobody_is_connected(
    tmp_path: Path,
) -> None:
    path = tmp_path / "b.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen(4)
        process = subprocess.Popen(
            [sys.executable, "-m", "hourwheel.integrations.bridge_server", str(listening.fileno())],
            pass_fds=[listening.fileno()],
        )
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as ours:
            ours.connect(str(path))
            ours.settimeout(60)
            ours.sendall(pack(Frame({"version": 0})))
            assert ours.recv(1 << 16), "it serves"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as ours:
            ours.connect(str(path))
            ours.settimeout(60)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                os.kill(process.pid, number)
            ours.sendall(pack(Frame({"version": 0})))
            assert ours.recv(1 << 16), "it still does"
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
