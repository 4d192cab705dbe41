import pytest

from hourwheel import errors
from hourwheel.crc32c import crc32c
from storage.files.file_header import (
    VERSIONS,
    FileType,
    Identity,
    check_file_header,
    pack_file_header,
    unpack_file_header,
)

IDENTITY = Identity(bytes(range(16)), 7)
RAW = pack_file_header(FileType.RUN, IDENTITY, 1 << 40)


def resealed(raw: bytes) -> bytes:
    return raw[:60] + crc32c(raw[:60]).to_bytes(4, "little")


def check(raw: bytes, identity: Identity = IDENTITY, base: int | None = 1 << 40) -> None:
    check_file_header(raw, "some/file", FileType.RUN, identity, base)


def test_unpack_when_packed() -> None:
    header = unpack_file_header(RAW, "f")
    assert len(RAW) == 64
    assert header == (FileType.RUN, 1, IDENTITY, 1 << 40)
    assert check_file_header(RAW + b"more", "f", FileType.RUN, IDENTITY) == header
    check(RAW)


def test_types_have_two_letters_and_a_version() -> None:
    codes = [file_type.value for file_type in FileType]
    assert all(len(code) == 2 for code in codes)
    assert len(set(codes)) == len(codes)
    assert set(VERSIONS) == set(FileType)


@pytest.mark.parametrize("bit", range(64 * 8))
def test_check_when_any_bit_is_flipped(bit: int) -> None:
    raw = bytearray(RAW)
    raw[bit // 8] ^= 1 << bit % 8
    with pytest.raises(errors.CorruptFile, match="some/file"):
        check(bytes(raw))


@pytest.mark.parametrize("length", [0, 1, 63])
def test_check_when_short(length: int) -> None:
    with pytest.raises(errors.CorruptFile, match=f"only {length} bytes"):
        check(RAW[:length])


def test_check_when_of_another_version() -> None:
    with pytest.raises(errors.IncompatibleFormat, match="'RN' version 2") as raised:
        check(resealed(RAW[:8] + b"\x02\0" + RAW[10:]))
    assert raised.value.params == {"file": "some/file", "version": "2"}


def test_check_when_of_an_unknown_type() -> None:
    with pytest.raises(errors.IncompatibleFormat, match="'ZZ'"):
        check(resealed(RAW[:6] + b"ZZ" + RAW[8:]))


def test_check_when_longer_than_known() -> None:
    with pytest.raises(errors.IncompatibleFormat):
        check(resealed(RAW[:10] + b"\x80\0" + RAW[12:]))


@pytest.mark.parametrize("other", [Identity(bytes(16), 7), Identity(IDENTITY.cluster_id, 8)])
def test_check_when_foreign(other: Identity) -> None:
    with pytest.raises(errors.ForeignDirectory, match="some/file"):
        check(RAW, other)


def test_check_when_another_type_or_number() -> None:
    with pytest.raises(errors.CorruptFile, match="DELAY_LOG lies where RUN"):
        check(pack_file_header(FileType.DELAY_LOG, IDENTITY, 1 << 40))
    with pytest.raises(errors.CorruptFile, match="number 1099511627776"):
        check(RAW, base=5)


def test_pack_when_the_cluster_id_is_no_uuid() -> None:
    with pytest.raises(errors.InvariantViolated):
        pack_file_header(FileType.RUN, Identity(b"short", 0))
