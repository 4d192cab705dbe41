"""What goes wrong with an object store is said; marks keep who adds from who removes."""

from collections.abc import Iterator
from datetime import timedelta
from threading import Barrier, Event

import pytest

from hourwheel import errors
from node.tools.backup import command
from node.tools.backup.object_store import ObjectStore
from node.tools.backup.repository import Repository
from tests.support.fake_clock import FakeClock
from tests.support.s3_server import BUCKET, S3Server, s3_server

PLACE = f"s3://{BUCKET}/of/us"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server(monkeypatch) as one:
        yield one


def opened(clock: FakeClock | None = None, place: str = PLACE) -> ObjectStore:
    return ObjectStore.open(place, clock or FakeClock())


@pytest.mark.parametrize(
    "place", ["s3://", "s3:///a", "gs://a/b", "s3://u:p@a/b", "s3://a/b?x=1", "s3://a/b#c"]
)
def test_what_is_no_address_is_refused(place: str) -> None:
    with pytest.raises(errors.InvalidArgument):
        opened(place=place)


def test_data_goes_out_in_the_clear_only_where_that_is_allowed(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    before = len(server.requests)
    with pytest.raises(errors.Unprotected):
        opened()
    assert len(server.requests) == before


def test_all_lies_under_the_prefix_and_a_mark_goes_with_the_command(server: S3Server) -> None:
    store = opened()
    with store.adding():
        store.write("objects/ab/x", b"1")
        assert [one.split("/")[2] for one in server.paths()] == ["adding", "objects"]
    assert server.paths() == ["of/us/objects/ab/x"]


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        ("507 Insufficient Storage", b"<Code>XMinioStorageFull</Code>", errors.DiskFull),
        ("403 Forbidden", b"<Code>QuotaExceeded</Code>", errors.PermissionDenied),
        ("403 Forbidden", b"<Code>AccessDenied</Code>", errors.PermissionDenied),
        ("401 Unauthorized", b"", errors.Unauthenticated),
        (
            "400 Bad Request",
            b"<Code>AuthorizationHeaderMalformed</Code>",
            errors.FailedPrecondition,
        ),
        ("503 Slow Down", b"<Code>SlowDown</Code>", errors.Unavailable),
    ],
)
def test_a_refusal_of_the_store_has_a_type(
    server: S3Server, status: str, body: bytes, expected: type[errors.HourwheelError]
) -> None:
    store = opened()
    with store.adding():
        server.answer = lambda method, _: (status, body) if method == "PUT" else None
        with pytest.raises(expected, match=PLACE) as raised:
            store.write("objects/ab/x", b"1")
        assert type(raised.value) is expected
        assert "Debug" not in raised.value.message
        server.answer = lambda _method, _path: None
        assert not store.keep("objects/ab/x", 1)


def test_what_the_store_fails_to_answer_once_is_asked_again(server: S3Server) -> None:
    """Also a manifest: the answer to the first try was lost, and the second finds it there."""
    store, lost = opened(), list[str]()

    def answer(method: str, path: str) -> tuple[str, bytes] | None:
        if method == "PUT" and path.endswith(".json") and not lost:
            lost.append(path)
            server.client().put_object(
                Bucket=BUCKET, Key=path.removeprefix(f"/{BUCKET}/"), Body=b"1"
            )
            return "500 Internal Server Error", b""
        return None

    server.answer = answer
    with store.adding():
        store.write_new("backups/a.json", b"1")
    assert lost
    assert store.read("backups/a.json", 1) == b"1"


def test_a_store_that_is_gone_is_unavailable_and_a_bucket_that_is_not_there_is_not_found(
    server: S3Server,
) -> None:
    store = opened()
    missing = opened(place="s3://no-such-bucket/of/us")
    with pytest.raises(errors.NotFound, match="no such bucket"):
        missing.names("backups")
    with pytest.raises(errors.NotFound, match="no such bucket"), missing.adding():
        pass
    server.stop()
    with pytest.raises(errors.Unavailable):
        store.names("backups")


def test_without_credentials_it_is_said_what_is_missing(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    server.answer = lambda _, path: ("404 Not Found", b"") if path.startswith("/latest") else None
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", server.url)
    assert command.main(["list", PLACE]) == command.EXIT_FAILED
    assert "AWS_ACCESS_KEY_ID" in capsys.readouterr().err


def test_an_object_that_was_altered_or_cut_is_damage(server: S3Server) -> None:
    repository = Repository(opened())
    raw = b"of a message" * 100
    with opened().adding(), repository.putting() as puts:
        piece = puts.put(raw)
    (path,) = [one for one in server.paths() if "objects" in one]
    for wrong in (raw[:-1], raw + b"!", b"!" + raw[1:]):
        server.client().put_object(Bucket=BUCKET, Key=path, Body=wrong)
        with pytest.raises(errors.CorruptFile):
            repository.get(piece)
    server.client().delete_object(Bucket=BUCKET, Key=path)
    with pytest.raises(errors.CorruptFile, match="missing"):
        repository.get(piece)


# -- several at one time --------------------------------------------------------------------------


def pieces(count: int) -> list[bytes]:
    return [bytes([number]) * 1_000 for number in range(count)]


def test_pieces_are_put_several_at_a_time_and_each_once(server: S3Server) -> None:
    store = opened()
    together = Barrier(store.writer_count)

    def answer(method: str, path: str) -> None:
        if method == "PUT" and "objects" in path:
            together.wait(60)  # breaks unless so many are under way at one time

    server.answer = answer
    repository = Repository(store)
    all_of_them = pieces(3 * store.writer_count)
    with store.adding(), repository.putting() as puts:
        found = [puts.put(raw) for raw in (*all_of_them, *all_of_them)]
    assert puts.new_bytes == sum(map(len, all_of_them))
    assert [repository.get(one) for one in found] == [*all_of_them, *all_of_them]
    server.answer = lambda _method, _path: None
    with store.adding(), repository.putting() as puts:
        for raw in all_of_them:
            puts.put(raw)
    assert puts.new_bytes == 0


def test_a_piece_that_cannot_be_put_fails_the_backup_and_none_is_under_way_behind_it(
    server: S3Server,
) -> None:
    store = opened()
    denied = Event()

    def answer(method: str, path: str) -> tuple[str, bytes] | None:
        if method != "PUT" or "objects" not in path:
            return None
        if not denied.is_set():
            denied.set()
            return "403 Forbidden", b"<Code>AccessDenied</Code>"
        return None

    server.answer = answer
    repository = Repository(store)

    def put_all() -> None:
        with store.adding(), repository.putting() as puts:
            for raw in pieces(40):
                puts.put(raw)

    with pytest.raises(errors.PermissionDenied):
        put_all()
    assert ("POST", f"/{BUCKET}") == server.requests[-1], "the mark is deleted when all have ended"
    assert not [path for path in server.paths() if "adding" in path]


# -- marks ----------------------------------------------------------------------------------------


def test_who_adds_and_who_removes_are_never_there_at_once(server: S3Server) -> None:
    one, other = opened(), opened()
    with one.adding(), other.adding():
        with pytest.raises(errors.Unavailable, match="adding"), opened().removing():
            pass
        assert len([path for path in server.paths() if "removing" in path]) == 0
    with (
        one.removing(),
        other.removing(),
        pytest.raises(errors.Unavailable, match="removing"),
        opened().adding(),
    ):
        pass
    assert server.paths() == []


def test_a_mark_of_a_dead_command_counts_for_nothing_after_a_while(server: S3Server) -> None:
    dead = f"{PLACE.removeprefix(f's3://{BUCKET}/')}/adding/dead"
    server.client().put_object(Bucket=BUCKET, Key=dead, Body=b"")
    with pytest.raises(errors.Unavailable, match="dead"), opened().removing():
        pass
    with ObjectStore.open(PLACE, FakeClock(), mark_dead=timedelta(0)).removing():
        assert dead not in server.paths()


def test_a_mark_is_renewed_and_who_stood_still_gives_up(server: S3Server) -> None:
    clock = FakeClock()
    store = opened(clock)
    with store.adding():
        server.requests.clear()
        for _ in range(20):
            clock.pass_ms(300_000)
            store.keep("objects/ab/x", 1)
        renewed = [path for method, path in server.requests if method == "PUT" and "adding" in path]
        assert len(renewed) == 20
        clock.pass_ms(601_000)
        with pytest.raises(errors.Unavailable, match="stood still"):
            store.write_new("backups/a.json", b"1")
    assert opened().names("backups") == []
    with store.adding():
        (mark,) = [path for path in server.paths() if "adding" in path]
        server.client().delete_object(Bucket=BUCKET, Key=mark)
        with pytest.raises(errors.Unavailable, match="stood still"):
            store.write_new(
                "backups/a.json", b"1"
            )  # of a machine that was suspended: no time passed
