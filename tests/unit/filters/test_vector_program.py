import numpy as np
import pytest

from filters import vector_program
from filters.vector_program import VectorProgram
from hourwheel.filter_language.evaluate import matches
from hourwheel.filter_language.text import FilterExpression, parse
from hourwheel.filter_language.tree import EVERYTHING
from hourwheel.formats.meta import MessageMeta, encode

VALUES = (
    *("5", "5.0", "-5", "9223372036854775807", "9223372036854775808", "9223372036854775806.0"),
    *("-9223372036854775808", "9007199254740993", "9007199254740992.0", "0.1", "1e3", "word", ""),
    *("true", "FALSE", "tru", "x" * 40, "1e30", "-1e30"),
)
METAS = [
    MessageMeta(("a",), (), (("n", left), ("m", right))) for left in VALUES for right in VALUES
] + [MessageMeta(), MessageMeta(("b",), ("k",), (("m", "5"),))]


def run(text: str, raws: list[bytes]) -> list[bool]:
    lengths = np.array([len(raw) for raw in raws], np.int64)
    program = VectorProgram(parse(FilterExpression.sql(text)))
    found: list[bool] = program.run(b"".join(raws), np.cumsum(lengths) - lengths, lengths).tolist()
    return found


@pytest.mark.parametrize("operator", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize("value", ["m", *(each for each in VALUES[:11])])
def test_run_when_numbers_are_compared(operator: str, value: str) -> None:
    text = f"n {operator} {value}"
    tree = parse(FilterExpression.sql(text))
    expected = [matches(tree, meta.tags, meta.properties) for meta in METAS]
    assert run(text, [encode(meta).raw for meta in METAS]) == expected
    assert len(set(expected)) == 2


@pytest.mark.parametrize(
    "text",
    [
        "n IN (5, 9223372036854775807, 0.1)",
        "n NOT IN (5, 9223372036854775808)",
        "n IN (1, 2, 3, 4, 5, 6, 7, 8, 1000, 9007199254740992)",
        "n = 'word' OR m = ''",
        "n IN ('word', '5', 'x')",
        "n CONTAINS '5'",
        "n NOT STARTSWITH '9'",
        "n ENDSWITH '.0'",
        f"n ENDSWITH '{'x' * 40}'",
        "n = true",
        "n <> false",
        "n IS NULL",
        "m IS NOT NULL AND NOT (n < 5 OR m > 5)",
    ],
)
def test_run_when_values_are_tested(text: str) -> None:
    tree = parse(FilterExpression.sql(text))
    expected = [matches(tree, meta.tags, meta.properties) for meta in METAS]
    assert run(text, [encode(meta).raw for meta in METAS]) == expected
    assert len(set(expected)) == 2


def test_run_when_there_are_several_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_program, "PIECE", 7)
    found = run("n = 5", [encode(meta).raw for meta in METAS])
    assert found == [dict(meta.properties).get("n") in {"5", "5.0"} for meta in METAS]


def test_run_when_a_meta_is_odd_it_is_decoded() -> None:
    later = b"\x30\x01" + encode(MessageMeta((), (), (("n", "5"),))).raw
    assert run("n = 5", [later, b"\xff", b""]) == [True, False, False]
    assert run("n IS NULL", [later, b"\xff", b""]) == [False, True, True]


def test_run_when_the_tree_is_constant() -> None:
    none = np.zeros(3, np.int64)
    assert VectorProgram(EVERYTHING).run(b"", none, none).all()


def test_run_when_there_are_no_messages() -> None:
    assert run("n = 5", []) == []
