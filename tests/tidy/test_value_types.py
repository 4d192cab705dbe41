"""Numbers and ids that must never be mixed up carry their types (hourwheel/types.py).

The server's rooms annotate them so wherever a name says what a value is, and with `Any` as little
as they can: a fault is a line that can be mended by writing the type.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from typing import Final

from tests.tidy import tree

ROOMS: Final = ("node/", "replication/", "storage/", "hourwheel/formats/")
"""Not `timewheel`: it works with bounds between messages, see `hourwheel.types.Key`."""
TYPES: Final = {
    "applied_offset": "Offset",
    "base_sequence": "SequenceNumber",
    "committed_offset": "Offset",
    "end_offset": "Offset",
    "end_position": "Position",
    "epoch": "Epoch",
    "first_new_topic_id": "TopicId",
    "first_position": "Position",
    "group_id": "GroupId",
    "log_end_offset": "Offset",
    "log_start_offset": "Offset",
    "next_position": "Position",
    "next_sequence": "SequenceNumber",
    "node_id": "NodeId",
    "published_epoch": "Epoch",
    "retry_topic_id": "TopicId",
    "sequence": "SequenceNumber",
    "sequence_floor": "SequenceNumber",
    "shard": "ShardId",
    "shard_id": "ShardId",
    "start_offset": "Offset",
    "start_position": "Position",
    "visible_end": "Position",
    "topic_id": "TopicId",
    "topic_queue": "TopicQueue",
}
"""Name of a parameter, a field, or of what a function gives -> the type of its value."""
BARE: Final = frozenset({"int", "str"})
EDGES: Final = {
    ("node/shard/group_queue.py", "GroupQueue.of"),
    ("storage/views/unit.py", "count_to"),
}
"""Functions that take bare numbers: as messages and columns carry them, or bounds between messages.
This list may shrink, and not grow."""
ANYS_MAX: Final = {
    "node/access": 29,
    "node/api": 75,
    "node/catalog": 1,
    "node/cluster": 48,
    "node/config": 7,
    "node/console": 11,
    "node/contracts": 1,
    "node/metrics": 2,
    "node/process": 7,
    "node/repair": 5,
    "node/replica": 2,
    "node/shard": 8,
    "node/telemetry": 10,
    "node/tools": 26,
}
"""Package of `node` -> how often its annotations say `Any`. These numbers only fall."""

Annotated = tuple[int, str, str, ast.expr]
"""(line, function with its classes, name, annotation)."""


def annotations(body: ast.AST, path: str = "") -> Iterator[Annotated]:
    """Of all that is below a node of the syntax."""
    for node in ast.iter_child_nodes(body):
        within = path
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            within = f"{path}.{node.name}".strip(".")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.lineno, within, node.name, node.returns
        if isinstance(node, ast.arg) and node.annotation is not None:
            yield node.lineno, within, node.arg, node.annotation
        if isinstance(node, ast.AnnAssign):
            name = node.target.attr if isinstance(node.target, ast.Attribute) else ""
            name = node.target.id if isinstance(node.target, ast.Name) else name
            yield node.lineno, within, name, node.annotation
        yield from annotations(node, within)


def names_in(annotation: ast.expr) -> Iterator[str]:
    """Names of types in an annotation, whether it is code or a text."""
    if isinstance(annotation, ast.Name):
        yield annotation.id
    elif isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        yield from names_in(ast.parse(annotation.value, mode="eval").body)
    elif isinstance(annotation, ast.Subscript) and tree.dotted_name(annotation.value) == "Literal":
        return  # its texts are values
    for child in ast.iter_child_nodes(annotation):
        if isinstance(child, ast.expr):
            yield from names_in(child)


def find_bare(module: ast.Module, path: str) -> Iterator[str]:
    """A line for each value that has a type of its own and is annotated without."""
    for line, within, name, annotation in annotations(module):
        wanted = TYPES.get(name.strip("_").removeprefix("find_"))
        if wanted and (path, within) not in EDGES and BARE.intersection(names_in(annotation)):
            yield f"{path}:{line}: {name}: {ast.unparse(annotation)}, where it is of {wanted}"


def test_values_with_types_of_their_own_are_annotated_with_them() -> None:
    paths = [path for path in tree.modules() if path.startswith(ROOMS)]
    assert [fault for path in paths for fault in find_bare(tree.syntax(path), path)] == []


def test_edges_are_still_there() -> None:
    """Whoever takes away an edge takes it from the list."""
    for path, function in EDGES:
        found = {within for _, within, name, _ in annotations(tree.syntax(path)) if name in TYPES}
        assert function in found


def count_anys() -> Counter[str]:
    """Package of `node` -> how often its annotations say `Any`."""
    counts: Counter[str] = Counter()
    for path in tree.modules():
        if path.startswith("node/"):
            package = "/".join(path.split("/")[:2])
            for *_, annotation in annotations(tree.syntax(path)):
                counts[package] += list(names_in(annotation)).count("Any")
    return +counts


def test_node_says_any_no_more_often_than_it_did() -> None:
    more = {one: count for one, count in count_anys().items() if count > ANYS_MAX.get(one, 0)}
    assert more == {}, "write the type; where there is none, see ANYS_MAX"


def find_asserted(module: ast.Module, path: str) -> Iterator[str]:
    """A line for each assertion that a value is there: `python -O` strips it."""
    for node in ast.walk(module):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare):
            compared = node.test
            if isinstance(compared.ops[0], ast.IsNot) and ast.unparse(compared).endswith("None"):
                yield f"{path}:{node.lineno}: {ast.unparse(compared)}: see errors.required"


def test_values_that_must_be_there_are_required() -> None:
    paths = [path for path in tree.modules() if not path.startswith("tests/")]
    assert [fault for path in paths for fault in find_asserted(tree.syntax(path), path)] == []


def test_asserted_values_are_found() -> None:
    module = ast.parse("assert a is not None\nassert a is None\nassert b.c is not None, 'd'\n")
    assert [one.split(":")[1] for one in find_asserted(module, "a")] == ["1", "3"]


def test_faults_are_found_by_name_and_line() -> None:
    text = """\
def find_epoch(self, topic_id: int, *, epoch: "int | None" = None) -> int: ...
class A:
    group_id: GroupId
    _epoch: Callable[[], int]
    def b(self) -> None:
        self.topic_queue: dict[int, str] = {}
"""
    lines = [fault.split(":")[1] for fault in find_bare(ast.parse(text), "a")]
    assert lines == ["1", "1", "1", "4", "6"]
