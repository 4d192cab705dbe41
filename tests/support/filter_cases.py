"""Random filters and messages, each filter also as a condition of SQLite: the model of our SQL."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final

from hypothesis import strategies as st

from hourwheel.filter_language.tree import quoted
from hourwheel.formats.meta import MessageMeta

NAMES: Final = ("a", "b", "region", "x.y-$", "TAGS")
TAGS: Final = ("t", "paid", "a tag of more than eight bytes", "é", "(", "a'b")
NUMBERS: Final = (
    *("0", "-0", "5", "+5", "-5", "5.0", "5.", ".5", "-1.25", "12.50", "1e3", "1E-3", "2e308"),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "9223372036854775807.0",
    ),
    *("9007199254740992", "9007199254740993", "9007199254740993.0", "123456789", "12345678"),
    *("1234567890123456", "12345678901234567", "123456789012.345", "0.1", "0.30000000000000004"),
)
NO_NUMBERS: Final = (
    "",
    ".",
    "+",
    "--5",
    "1e",
    "0x5",
    "nan",
    "inf",
    " 5",
    "5 ",
    "1_0",
    "٣",
    "5" * 65,
)
TEXTS: Final = (
    *("", "a", "A", "eu", "abcdefgh", "abcdefghi", "it's", '"', "é", "€uro", "%", "a_b"),
    *("true", "TRUE", "False", "tru", "falsee", "x" * 130, "x" * 129 + "y"),
)

values: Final = st.sampled_from((*NUMBERS, *NO_NUMBERS, *TEXTS)) | st.text(
    st.characters(codec="utf-8", min_codepoint=32), max_size=12
)
numbers: Final = (
    st.sampled_from([each for each in NUMBERS if each != "2e308"])
    | st.integers(-(2**63), 2**63 - 1).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
)
metas: Final = st.builds(
    MessageMeta,
    tags=st.lists(st.sampled_from(TAGS), max_size=4).map(tuple),
    keys=st.lists(st.sampled_from(("k", "k" * 200)), max_size=2).map(tuple),
    properties=st.dictionaries(st.sampled_from((*NAMES, "other")), values, max_size=5).map(
        lambda pairs: tuple(pairs.items())
    ),
    client_message_id=st.sampled_from(("", "mine")),
    content_type=st.sampled_from(("", "text/plain")),
)


@dataclass(frozen=True)
class SqlCase:
    """One condition in both languages."""

    text: str
    """In ours."""
    model: str
    """In SQLite's, with `?` for each of `parameters`."""
    parameters: tuple[object, ...] = ()


def model_number(text: str) -> int | float | None:
    """What a text is as a number, by other means than ours."""
    if len(text) > 64 or not text.isascii() or not set(text) <= set("0123456789+-.eE"):
        return None
    try:
        exact = Decimal(text)
    except InvalidOperation:
        return None
    if not set(text) & set(".eE") and -(2**63) <= exact < 2**63:
        return int(exact)
    nearest = float(text)
    return None if nearest in {float("inf"), float("-inf")} else nearest


def _column(name: str) -> str:
    """SQLite's name of a property, as a filter writes that."""
    return f"c{NAMES.index(name.strip(chr(34)))}"


_names: Final = st.sampled_from([name if name != "TAGS" else '"TAGS"' for name in NAMES])
_equality: Final = st.sampled_from(("=", "<>", "!="))
_operators: Final = st.sampled_from(("=", "<>", "!=", "<", "<=", ">", ">="))
_not: Final = st.sampled_from(("", "NOT "))
_places: Final = {
    "CONTAINS": "instr({0}, ?) > 0",
    "STARTSWITH": "substr({0}, 1, length(?1)) = ?1",
    "ENDSWITH": "CASE WHEN {0} IS NULL THEN NULL ELSE"
    " length({0}) >= length(?1) AND substr({0}, length({0}) - length(?1) + 1) = ?1 END",
}


def _has_one_of(count: int) -> str:
    """Whether one of a message's tags is one of so many: unknown where it has none."""
    wanted = ", ".join("?" * count)
    found = f"EXISTS (SELECT 1 FROM json_each(tags) WHERE value IN ({wanted}))"
    return f"(CASE WHEN tags IS NOT NULL THEN {found} END)"


@st.composite
def _leaves(draw: st.DrawFn) -> SqlCase:  # noqa: PLR0911 - one for each kind
    name, negation = draw(_names), draw(_not)
    column, number, text = f"{_column(name)}n", draw(numbers), draw(values)
    value = model_number(number)
    operator = draw(_operators)
    match draw(st.integers(0, 10)):
        case 0:
            return SqlCase(f"{name} {operator} {number}", f"{column} {operator} ?", (value,))
        case 1:
            return SqlCase(f"{number} {operator} {name}", f"? {operator} {column}", (value,))
        case 2:
            equality = draw(_equality)
            model = f"{_column(name)} {equality} ?"
            return SqlCase(f"{name} {equality} {quoted(text, chr(39))}", model, (text,))
        case 3:
            equality, truth = draw(_equality), draw(st.booleans())
            return SqlCase(f"{name} {equality} {truth}", f"{_column(name)}b {equality} ?", (truth,))
        case 4:
            other, suffix = draw(_names), "" if operator in {"=", "<>", "!="} else "n"
            model = f"{_column(name)}{suffix} {operator} {_column(other)}{suffix}"
            return SqlCase(f"{name} {operator} {other}", model)
        case 5:
            texts = draw(st.lists(values, min_size=1, max_size=10))
            listed = ", ".join(quoted(each, "'") for each in texts)
            model = f"{_column(name)} {negation}IN ({', '.join('?' * len(texts))})"
            return SqlCase(f"{name} {negation}IN ({listed})", model, tuple(texts))
        case 6:
            some = draw(st.lists(numbers, min_size=1, max_size=10))
            model = f"{column} {negation}IN ({', '.join('?' * len(some))})"
            known = tuple(map(model_number, some))
            return SqlCase(f"{name} {negation}IN ({', '.join(some)})", model, known)
        case 7:
            return SqlCase(f"{name} IS {negation}NULL", f"{_column(name)} IS {negation}NULL")
        case 8:
            high = draw(numbers)
            model = f"{column} {negation}BETWEEN ? AND ?"
            written = f"{name} {negation}BETWEEN {number} AND {high}"
            return SqlCase(written, model, (value, model_number(high)))
        case 9:
            place = draw(st.sampled_from(sorted(_places)))
            model = _places[place].format(_column(name))
            count = model.replace("?1", "?").count("?")
            written = f"{name} {negation}{place} {quoted(text, chr(39))}"
            return SqlCase(written, f"{negation}({model.replace('?1', '?')})", (text,) * count)
        case _:
            return SqlCase(name, f"{_column(name)}b")


@st.composite
def _tag_leaves(draw: st.DrawFn) -> SqlCase:
    negation = draw(_not)
    tags = draw(st.lists(st.sampled_from(TAGS), max_size=3))
    if not tags:
        return SqlCase(f"TAGS IS {negation}NULL", f"tags IS {negation}NULL")
    listed = [quoted(each, "'") for each in tags]
    model = _has_one_of(len(tags))
    if len(tags) == 1 and draw(st.booleans()):
        equality = draw(_equality)
        written = draw(st.sampled_from(("TAGS {0} {1}", "{1} {0} TAGS")))
        negation = "" if equality == "=" else "NOT "
        return SqlCase(written.format(equality, *listed), negation + model, tuple(tags))
    return SqlCase(f"TAGS {negation}IN ({', '.join(listed)})", negation + model, tuple(tags))


def _joined(parts: Sequence[SqlCase], word: str) -> SqlCase:
    return SqlCase(
        f" {word} ".join(f"({part.text})" for part in parts),
        f" {word} ".join(f"({part.model})" for part in parts),
        tuple(value for part in parts for value in part.parameters),
    )


sql_cases: Final[st.SearchStrategy[SqlCase]] = st.recursive(
    _leaves() | _leaves() | _tag_leaves(),
    lambda inner: (
        inner.map(
            lambda each: SqlCase(f"NOT ({each.text})", f"NOT ({each.model})", each.parameters)
        )
        | st.builds(
            _joined, st.lists(inner, min_size=1, max_size=3), st.sampled_from(("AND", "OR"))
        )
    ),
    max_leaves=10,
)

tag_texts: Final[st.SearchStrategy[str]] = st.recursive(
    st.sampled_from([quoted(tag, "'") for tag in TAGS] + ["t", "paid", "é", "*"]),
    lambda inner: (
        inner.map(lambda each: f"!({each})")
        | st.builds(
            lambda parts, word: f"({f' {word} '.join(parts)})",
            st.lists(inner, min_size=1, max_size=3),
            st.sampled_from(("&&", "||")),
        )
    ),
    max_leaves=6,
)


def model_answers(case: SqlCase, block: Sequence[MessageMeta]) -> list[bool | None]:
    """What SQLite says of each message: true, false or unknown."""
    truths = {"true": True, "false": False}
    with sqlite3.connect(":memory:") as database:
        columns = ", ".join(f"{_column(n)} TEXT, {_column(n)}n, {_column(n)}b" for n in NAMES)
        database.execute(f"CREATE TABLE message (id INTEGER PRIMARY KEY, tags, {columns})")
        for number, meta in enumerate(block):
            cells: list[object] = [number, json.dumps(meta.tags) if meta.tags else None]
            row = dict(meta.properties)
            for name in NAMES:
                text = row.get(name)
                if text is None:
                    cells += [None, None, None]
                else:
                    truth = truths.get(text.lower()) if text.isascii() else None
                    cells += [text, model_number(text), truth]
            database.execute(f"INSERT INTO message VALUES ({', '.join('?' * len(cells))})", cells)
        found = database.execute(
            f"SELECT ({case.model}) FROM message ORDER BY id", case.parameters
        ).fetchall()
    database.close()
    return [None if value is None else bool(value) for (value,) in found]
