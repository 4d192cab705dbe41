import pytest

from hourwheel.filter_language.evaluate import evaluate, matches
from hourwheel.filter_language.text import FilterExpression, parse

ROW = {"n": "5", "big": "9223372036854775807", "t": "hello", "yes": "True", "f": "5.0", "e": ""}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("n = 5", True),
        ("n = 5.0", True),
        ("f = 5", True),
        ("n <> 5", False),
        ("n > 4.5", True),
        ("n = '5'", True),
        ("f = '5'", False),
        ("t = 5", None),
        ("t <> 5", None),
        ("none = 5", None),
        ("NOT none = 5", None),
        ("none = 5 OR n = 5", True),
        ("none = 5 OR n = 6", None),
        ("none = 5 AND n = 6", False),
        ("none = 5 AND n = 5", None),
        ("none IS NULL", True),
        ("e IS NULL", False),
        ("e = ''", True),
        ("yes", True),
        ("yes = false", False),
        ("t", None),
        ("n = f", False),
        ("n <= f", True),
        ("n < t", None),
        ("none = n", None),
        ("big > 9223372036854775806.0", False),
        ("big < 9223372036854775808", True),
        ("big IN (1, 9223372036854775807)", True),
        ("t IN ('x', 'hello')", True),
        ("none NOT IN ('x')", None),
        ("t CONTAINS 'ell'", True),
        ("t STARTSWITH 'hello!'", False),
        ("t NOT ENDSWITH 'lo'", False),
        ("t CONTAINS ''", True),
        ("none CONTAINS ''", None),
        ("n BETWEEN 5 AND 5", True),
        ("t BETWEEN 1 AND 2", None),
    ],
)
def test_evaluate_sql(text: str, answer: bool | None) -> None:
    assert evaluate(parse(FilterExpression.sql(text)), (), ROW) is answer
    assert matches(parse(FilterExpression.sql(text)), (), ROW.items()) is (answer is True)


@pytest.mark.parametrize(
    ("text", "answer"),
    [("a", True), ("c", False), ("!c && (a || c)", True), ("a && c", False), ("*", True)],
)
def test_evaluate_tags(text: str, answer: bool) -> None:
    assert evaluate(parse(FilterExpression.tags(text)), ("a", "b"), {}) is answer
