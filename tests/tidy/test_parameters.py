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
