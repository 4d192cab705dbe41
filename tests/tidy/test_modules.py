"""Packages have tests, a purpose and few files; calls that make tests hard are absent."""

import ast
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Final

import pytest

from tests.tidy import tree

UNSEEDED: Final[dict[str, str]] = {
    "hourwheel/transport/channel.py": "jitter between retries: two clients must not draw the same",
}
"""Files that may make a random generator without a seed, and why."""

FILES_MAX: Final = 25
"""Modules beside each other: more is a warehouse."""

MEASURING: Final = ("tests/bench/", "tests/soak/")
"""Below these, tests may wait for time to pass: they measure it."""
EVENTUALLY: Final = "tests/support/eventually.py"
"""It waits between two looks at what it waits for."""


def packages() -> dict[str, list[str]]:
    """Folder -> its modules, but for those that only start a program."""
    found: dict[str, list[str]] = {}
    for path in tree.modules():
        if PurePosixPath(path).name not in {"__init__.py", "__main__.py"}:
            found.setdefault(str(PurePosixPath(path).parent), []).append(path)
    return found


def test_every_package_has_unit_tests() -> None:
    tested = {
        match[1]
        for path in tree.files_named(".py")
        if (match := re.fullmatch(r"tests/unit/(.*)/test_\w+\.py", path))
    }
    untested = packages().keys() - tested
    assert untested == set(), "write tests/unit/<package>/test_*.py"
    assert tested - packages().keys() == set(), "tests of a package that is gone"


def test_packages_have_room() -> None:
    crowded = {name: len(paths) for name, paths in packages().items() if len(paths) > FILES_MAX}
    assert crowded == {}


def test_every_package_says_what_it_is_for() -> None:
    assert [
        name for name in packages() if not ast.get_docstring(tree.syntax(f"{name}/__init__.py"))
    ] == []


def is_unseeded_random(call: ast.Call) -> bool:
    """Whether a generator is made without a seed, or numpy's hidden one is used."""
    name = tree.dotted_name(call.func)
    makers = {"random.Random", "random.SystemRandom"}
    if name in makers or name in {"np.random.default_rng", "numpy.random.default_rng"}:
        return not call.args and not call.keywords
    return bool(re.fullmatch(r"(np|numpy)\.random\.[a-z_]+", name))


def is_wait_for_time(call: ast.Call) -> bool:
    """Whether it waits for time to pass; `asyncio.sleep(0)` only lets others run."""
    if tree.dotted_name(call.func) not in {"asyncio.sleep", "time.sleep", "anyio.sleep"}:
        return False
    return not (call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0)


def is_skip(call: ast.Call) -> bool:
    """Whether it leaves a test out."""
    name = tree.dotted_name(call.func)
    return bool(re.fullmatch(r"pytest\.(skip|xfail|importorskip|mark\.(skip|skipif|xfail))", name))


def calls_that(is_banned: Callable[[ast.Call], bool], paths: tuple[str, ...]) -> list[str]:
    """`path:line` of each call in `paths` that `is_banned` says yes to."""
    return [
        f"{path}:{node.lineno}"
        for path in paths
        for node in ast.walk(tree.syntax(path))
        if isinstance(node, ast.Call) and is_banned(node)
    ]


def test_random_numbers_have_a_seed() -> None:
    found = calls_that(is_unseeded_random, tree.files_named(".py"))
    assert {each.split(":")[0] for each in found} == set(UNSEEDED)


def test_tests_do_not_wait_for_time() -> None:
    tests = tuple(
        path
        for path in tree.files_named(".py")
        if path.startswith("tests/") and not path.startswith((*MEASURING, EVENTUALLY))
    )
    assert calls_that(is_wait_for_time, tests) == []


def test_tests_are_not_skipped() -> None:
    assert calls_that(is_skip, tree.files_named(".py")) == []
    marks = re.compile(r"^\s*@pytest\.mark\.(skip|xfail)\b", re.MULTILINE)
    assert [path for path in tree.files_named(".py") if marks.search(tree.text(path))] == []


@pytest.mark.parametrize(
    ("is_banned", "code", "found"),
    [
        (is_unseeded_random, "random.Random()", True),
        (is_unseeded_random, "random.Random(7)", False),
        (is_unseeded_random, "np.random.default_rng()", True),
        (is_unseeded_random, "np.random.default_rng(7)", False),
        (is_unseeded_random, "np.random.randint(5)", True),
        (is_wait_for_time, "asyncio.sleep(1)", True),
        (is_wait_for_time, "asyncio.sleep(0)", False),
        (is_wait_for_time, "time.sleep(delay)", True),
        (is_skip, "pytest.skip('later')", True),
        (is_skip, "pytest.mark.skipif(windows)", True),
        (is_skip, "pytest.mark.parametrize('a', [1])", False),
    ],
)
def test_banned_calls_are_recognised(
    is_banned: Callable[[ast.Call], bool], code: str, found: bool
) -> None:
    call = ast.parse(code, mode="eval").body
    assert isinstance(call, ast.Call)
    assert is_banned(call) == found
