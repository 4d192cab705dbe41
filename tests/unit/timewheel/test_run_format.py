import pytest

from timewheel.run_format import (
    FOOTER,
    SECTION,
    SLOT,
    Footer,
    delay_log_path,
    pack_footer,
    run_path,
    unit_at,
    unpack_footer,
)

FOOTER_EXAMPLE = Footer(
    unit_count=1 << 40,
    section_count=2,
    level=1,
    covers_first=3,
    run_id=0xFFFF_FFFE,
    due_ms_min=-1,
    due_ms_max=(1 << 53) - 1,
    delay_log_first=4,
    delay_log_last=5,
    tables_crc=0x89AB_CDEF,
    first_page=7,
    end_page=0xFFFF_FFFF,
)


def test_footer_when_packed_and_unpacked() -> None:
    raw = pack_footer(FOOTER_EXAMPLE)
    assert len(raw) == FOOTER.size
    assert unpack_footer(raw) == FOOTER_EXAMPLE


def test_footer_when_any_bit_is_flipped_is_none() -> None:
    good = pack_footer(FOOTER_EXAMPLE)
    for bit in range(len(good) * 8):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        assert unpack_footer(bytes(bad)) is None, bit


@pytest.mark.parametrize("size", [0, 4, 60, 63])
def test_footer_when_cut_is_none(size: int) -> None:
    assert unpack_footer(pack_footer(FOOTER_EXAMPLE)[:size]) is None


def test_footer_when_longer_is_none() -> None:
    assert unpack_footer(pack_footer(FOOTER_EXAMPLE) + b"\0") is None


def test_footer_when_all_zeros_is_none() -> None:
    # What a file system may leave of a file that was not synced.
    assert unpack_footer(bytes(FOOTER.size)) is None


def test_slots_and_sections_when_read_on_any_machine_are_little_endian_and_packed() -> None:
    assert SLOT.fields is not None
    assert SECTION.fields is not None
    assert [(name, SLOT.fields[name][1]) for name in SLOT.names or ()] == [
        *(("first", 0), ("count", 4), ("previous_run", 8)),
    ]
    assert [(name, SECTION.fields[name][1]) for name in SECTION.names or ()] == [
        *(("bucket", 0), ("first", 8), ("count", 16), ("crc", 20)),
    ]


def test_unit_at_when_beyond_four_gigabytes() -> None:
    assert unit_at(0) == 64
    assert unit_at(1 << 30) == 64 + (1 << 36)


def test_paths_when_sorted_by_name_are_in_order_of_their_numbers() -> None:
    assert run_path("w", 1, 12) == "w/0000000001-0000000012.run"
    assert delay_log_path("w", 4_294_967_295) == "w/4294967295.dlog"
    assert delay_log_path("w", 9) < delay_log_path("w", 10)
    assert run_path("w", 9, 9) < run_path("w", 10, 10)
