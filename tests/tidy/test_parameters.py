"""How many parameters a function may have: values that belong together are one object."""

import ast
from collections.abc import Iterator
from typing import Final

from tests.tidy import tree

PARAMETERS_MAX: Final = 8
LONGER: Final = {
    ("hourwheel/cli/consume.py", "consume"),
    ("hourwheel/cli/pending.py", "cancel_pending"),
    ("hourwheel/cli/pending.py", "count_pending"),
    ("hourwheel/cli/pending.py", "list_pending"),
    ("hourwheel/cli/pending.py", "reschedule_pending"),
    ("hourwheel/cli/publish.py", "publish"),
    ("hourwheel/cli/recurring/command.py", "put"),
    ("hourwheel/client/consumer.py", "AsyncConsumer.__init__"),
    ("hourwheel/client/producer.py", "AsyncProducer.__init__"),
    ("hourwheel/formats/record_batch.py", "build_publish"),
}
"""Options of commands and of clients, which users give by name, and the columns of a batch. This
list may shrink, and not grow."""


def functions(body: ast.AST, path: str = "") -> Iterator[tuple[str, ast.arguments]]:
    """(name with its classes, parameters) of each function below a node of the syntax."""
    for node in ast.iter_child_nodes(body):
        name = path
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{path}.{node.name}".strip(".")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, node.args
        yield from functions(node, name)


def count(parameters: ast.arguments) -> int:
    """Of them all, `self` and `cls` left out."""
    named = [*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs]
    return len([one for one in named if one.arg not in {"self", "cls"}])


def test_no_function_has_more_parameters_than_a_reader_can_hold() -> None:
    found = {
        (path, name)
        for path in tree.modules()
        for name, parameters in functions(tree.syntax(path))
        if count(parameters) > PARAMETERS_MAX
    }
    assert found - LONGER == set()
    assert LONGER - found == set(), "those that have become shorter leave the list"


def test_parameters_of_all_kinds_count() -> None:
    text = "class A:\n    async def b(self, c, /, d, *e, f, **g): ...\n"
    assert [(name, count(many)) for name, many in functions(ast.parse(text))] == [("A.b", 3)]


POSITIONAL_MAX: Final = 6
BY_POSITION: Final = {
    ("hourwheel/client/message.py", "MessageMeta"),
    ("hourwheel/formats/meta.py", "MessageMeta"),
    ("hourwheel/formats/record_batch.py", "Header"),
    ("node/api/consumer.py", "Receipt"),
}
"""Objects that are made for each message or batch, where names would cost time. This list may
shrink, and not grow."""
ROOMS: Final = ("hourwheel/", "node/")


def by_position(module: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, class) of each object that is made of more values than a reader can count."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            made = ast.unparse(node.func).split(".")[-1]
            values = sum(
                len(one.value.elts)
                if isinstance(one, ast.Starred) and isinstance(one.value, ast.Tuple | ast.List)
                else 1
                for one in node.args
            )
            if values > POSITIONAL_MAX and made[:1].isupper():
                yield node.lineno, made


def test_objects_of_many_fields_are_made_by_name() -> None:
    found = {
        (path, made)
        for path in tree.modules()
        if path.startswith(ROOMS)
        for _, made in by_position(tree.syntax(path))
    }
    assert found - BY_POSITION == set()
    assert BY_POSITION - found == set(), "those that are made by name leave the list"


def test_values_by_position_are_counted() -> None:
    text = "a.B(1, 2, 3, *(4, 5), 6, *c)\nB(1, 2, 3, 4, 5, 6)\nb(1, 2, 3, 4, 5, 6, 7)\n"
    assert list(by_position(ast.parse(text))) == [(1, "B")]
