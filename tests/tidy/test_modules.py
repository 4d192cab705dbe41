"""Modules and their tests are paired, and the calls that make programs hard to test are absent."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Final

import pytest

from tests.tidy import tree

UNTESTED: Final[dict[str, str]] = {}
"""Modules without a test file of their own, and why."""

SHOWN_BY: Final[dict[str, str]] = {
    "chaos/autopsy.py": "tests/cluster/test_chaos.py",
    "chaos/log_model.py": "tests/unit/chaos/test_stored.py",
    "chaos/machine.py": "tests/cluster/test_disk_faults.py",
    "chaos/stage.py": "tests/cluster/test_chaos.py",
    "node/contracts/control.py": "tests/unit/node/cluster/test_isr_updater.py",
    "node/broker/damage_desk.py": "tests/unit/node/repair/test_damage_control.py",
    "node/replica/effects.py": "tests/unit/node/replica/test_replica.py",
    "spark_jobs/schedule/command.py": "tests/spark/test_commands.py",
    "spark_jobs/runtime/shuffle.py": "tests/unit/spark_jobs/runtime/test_folder_shuffle.py",
    "spark_jobs/schedule/send.py": "tests/spark/test_bulk_schedule.py",
    "spark_jobs/schedule/source.py": "tests/spark/test_bulk_schedule.py",
}
"""Modules that are only an inner part of another, and the test file that shows what they do."""

UNSEEDED: Final[dict[str, str]] = {
    "hourwheel/transport/channel.py": "jitter between retries: two clients must not draw the same",
}
"""Files that may make a random generator without a seed, and why."""

MEASURING: Final = ("tests/bench/", "tests/soak/")
"""Below these, tests may wait for time to pass: they measure it."""


def places_of_tests(path: str) -> Iterator[str]:
    """Where a test file of the module at `path` may lie."""
    name = PurePosixPath(path).stem
    yield f"tests/unit/{PurePosixPath(path).parent}/test_{name}.py"
    for folder in ("tests/property", "tests/api", "tests/sim"):
        yield f"{folder}/test_{name}.py"
        yield f"{folder}/test_{name}_model.py"


def test_every_module_has_a_test_file_of_its_name() -> None:
    existing = set(tree.files())
    lonely = [
        path
        for path in tree.modules()
        if PurePosixPath(path).name not in {"__init__.py", "__main__.py"}
        and existing.isdisjoint(places_of_tests(path))
    ]
    excused = {**UNTESTED, **SHOWN_BY}
    assert [path for path in lonely if path not in excused] == [], "write a test file"
    assert [path for path in excused if path not in lonely] == [], "has a test file now, or is gone"


def test_modules_without_a_test_file_are_named_where_they_are_shown() -> None:
    unnamed = {
        path: test
        for path, test in SHOWN_BY.items()
        if not re.search(rf"\b{PurePosixPath(path).stem}\b", tree.text(test))
    }
    assert unnamed == {}


def modules_of_test(room: str, name: str) -> Iterator[str]:
    """Modules that a unit test file may be for: that of its name, or of the name's beginning."""
    words = name.split("_")
    for count in range(len(words), 0, -1):
        stem = "_".join(words[:count])
        yield f"{room}/{stem}.py"
    yield f"{room}/{name}/__init__.py"


def test_every_unit_test_file_has_a_module() -> None:
    existing = set(tree.modules())
    stale = [
        path
        for path in tree.files_named(".py")
        if (match := re.fullmatch(r"tests/unit/(.*)/test_(\w+)\.py", path))
        and existing.isdisjoint(modules_of_test(match[1], match[2]))
    ]
    assert stale == []


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
        if path.startswith("tests/") and not path.startswith(MEASURING)
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
