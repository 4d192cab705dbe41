"""Options are checked where they are given, and say what there is."""

import pytest

from hourwheel import errors
from spark_jobs.logs.columns import BODY_COLUMNS, TABLES
from spark_jobs.logs.options import LogOptions, parse_options


def test_options_when_only_the_path_is_given_have_defaults() -> None:
    options = parse_options({"path": "/a, /b"})
    assert options.paths == ("/a", "/b")
    assert options == LogOptions(("/a", "/b"), columns=options.columns)
    assert set(options.columns) == set(TABLES["messages"]) - set(BODY_COLUMNS)


def test_options_when_given_are_taken() -> None:
    options = parse_options(
        {
            "path": '["/a,b", "/c"]',
            "Rows": "Batches",
            "columns": " node , offset",
            "partition_bytes": "8192",
            "verify": "headers",
            "until": "committed",
            "nodes": "n1,n2",
            "starting": "latest",
            "fail_on_loss": "False",
        }
    )
    assert options == LogOptions(
        ("/a,b", "/c"),
        "batches",
        ("node", "offset"),
        8_192,
        "headers",
        "committed",
        ("n1", "n2"),
        "latest",
        fail_on_loss=False,
    )
    assert options.ddl == "`node` string, `offset` bigint"
    assert options.wants("offset", "topic")
    assert not options.wants("topic")


def test_bodies_when_asked_for_are_columns() -> None:
    options = parse_options({"path": "/a", "bodies": "true"})
    assert set(options.columns) == set(TABLES["messages"])
    assert parse_options({"path": "/a", "columns": "body"}).columns == ("body",)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "path is missing"),
        ({"path": " , "}, "path is missing"),
        ({"path": "[1"}, "no JSON list"),
        ({"path": "/a", "colums": "x"}, "unknown option 'colums'"),
        ({"path": "/a", "rows": "tables"}, "rows is one of messages"),
        ({"path": "/a", "columns": "sequence,price"}, "no column 'price'"),
        ({"path": "/a", "verify": "none"}, "verify is one of"),
        ({"path": "/a", "partition_bytes": "1k"}, "a number of at least"),
        ({"path": "/a", "partition_bytes": "10"}, "a number of at least"),
        ({"path": "/a", "bodies": "yes"}, "bodies is one of"),
    ],
)
def test_options_when_wrong_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(errors.ConfigError, match=said):
        parse_options(options)
