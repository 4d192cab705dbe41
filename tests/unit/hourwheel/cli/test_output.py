import asyncio
import json

import pytest
import typer

from hourwheel import errors
from hourwheel.cli.exit_codes import ExitCode
from hourwheel.cli.output import (
    Output,
    format_bytes,
    format_duration,
    format_instant,
    point_at,
    run,
)
from hourwheel.filter_language.inputs import Sql


@pytest.mark.parametrize(
    ("instant_ms", "text"),
    [
        (0, "1970-01-01 00:00:00.000Z"),
        (1_803_888_000_123, "2027-03-01 08:00:00.123Z"),
        (253_402_300_799_999, "9999-12-31 23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000"),
        (-1, "-1"),
    ],
)
def test_format_instant_when_any(instant_ms: int, text: str) -> None:
    assert format_instant(instant_ms) == text


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0s"),
        (5, "5ms"),
        (1_500, "1s500ms"),
        (90_000, "1m30s"),
        (3 * 86_400_000 + 5, "3d5ms"),
        (90_061_001, "1d1h"),
        (-90_000, "-1m30s"),
    ],
)
def test_format_duration_when_any(duration_ms: int, text: str) -> None:
    assert format_duration(duration_ms) == text


@pytest.mark.parametrize(
    ("raw", "text"), [(b"", ""), ("é[x]".encode(), "é[x]"), (b"a\tb", "a\\tb"), (b"\xff", "0xff")]
)
def test_format_bytes_when_any(raw: bytes, text: str) -> None:
    assert format_bytes(raw) == text


def test_rows_when_the_screen_is_narrow_keep_words_of_headings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    row = {"a_number": 1, "address": "x" * 60, "version": 2}
    Output(is_json=False).rows("things", [row], row)
    assert "address" in (shown := capsys.readouterr().out)
    assert "version" in shown


def test_rows_when_values_look_like_markup(capsys: pytest.CaptureFixture[str]) -> None:
    Output(is_json=False).rows(
        "things", [{"name": "[red]x[/red]", "a_count": 1_234}], ("name", "n")
    )
    shown = capsys.readouterr().out
    assert "[red]x[/red]" in shown
    assert "1,234" in shown


def test_rows_when_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    Output(is_json=True).rows("things", [{"name": "é", "n": 1_234}, {"name": "b"}], ("name", "n"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == '{"name": "é", "n": 1234}'
    assert json.loads(lines[1]) == {"name": "b"}


def test_line_when_for_people_only(capsys: pytest.CaptureFixture[str]) -> None:
    Output(is_json=True).line("x")
    Output(is_json=False).line("[b]y[/b] " * 50)
    assert capsys.readouterr().out == "[b]y[/b] " * 50 + "\n"


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (errors.UnknownGroup(), ExitCode.NOT_FOUND),
        (errors.Overloaded(), ExitCode.TRY_LATER),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
    ],
)
def test_run_when_it_fails(
    raised: BaseException, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    async def command() -> None:
        raise raised

    with pytest.raises(typer.Exit) as ended:
        run(Output(is_json=False), command())
    assert ended.value.exit_code == code
    assert capsys.readouterr().out == ""


def test_run_when_all_is_well_or_partly() -> None:
    async def command(code: ExitCode | None) -> ExitCode | None:
        await asyncio.sleep(0)
        return code

    run(Output(is_json=False), command(None))
    run(Output(is_json=False), command(ExitCode.OK))
    with pytest.raises(typer.Exit) as ended:
        run(Output(is_json=False), command(ExitCode.PARTLY))
    assert ended.value.exit_code == ExitCode.PARTLY


@pytest.mark.parametrize(
    ("text", "position", "lines"),
    [
        ("a ||", "4", ["  a ||", "      ^"]),
        ("a || b", "0", ["  a || b", "  ^"]),
        ("a\n\tb", "3", ["  a  b", "     ^"]),
        ("日本 ||", "3", ["  日本 ||", "       ^"]),
        ("x" * 100, "50", ["  ..." + "x" * 80 + "...", "  " + " " * 43 + "^"]),
        ("", "0", ["  ", "  ^"]),
    ],
)
def test_point_at_when_there_is_a_position(text: str, position: str, lines: list[str]) -> None:
    assert point_at(text, position) == lines


@pytest.mark.parametrize("position", ["", "7", "-1", "x", "\u0665"])
def test_point_at_when_there_is_none(position: str) -> None:
    assert point_at("a || b", position) == []


def test_error_when_a_filter_is_at_fault(capsys: pytest.CaptureFixture[str]) -> None:
    Output(is_json=False, wanted=Sql("a = [b]")).error(errors.InvalidFilter("no", position=4))
    Output(is_json=False, wanted=Sql("a = 1")).error(errors.InvalidTopic("bad", position=4))
    Output(is_json=False).error(errors.InvalidFilter("no", position=4))
    shown = capsys.readouterr().err.splitlines()
    assert shown == [
        *("InvalidFilter: no", "  a = [b]", "      ^"),
        "InvalidTopic: bad",
        "InvalidFilter: no",
    ]
