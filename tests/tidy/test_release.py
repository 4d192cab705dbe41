"""`make release`: what it refuses, and that equal sources give equal bytes."""

import hashlib
import importlib.util
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
import yaml

import hourwheel
from tests.tidy import tree

WORKFLOWS: Final = sorted(path for path in tree.files() if path.startswith(".github/workflows/"))
CHANGELOG: Final = """# Changelog

## [Unreleased]

### Added

- Wings.

## [1.2.0] - 2026-11-22

- Wheels.

## [1.1.0] - 2026-10-01
"""


def load() -> ModuleType:
    """packaging/release.py, which is a script."""
    spec = importlib.util.spec_from_file_location("release", tree.ROOT / "packaging/release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = load()


def test_notes_are_what_the_changelog_says_of_the_version() -> None:
    assert release.notes(CHANGELOG, "1.2.0", is_draft=False) == "- Wheels.\n"
    assert release.notes(CHANGELOG, "1.2.0", is_draft=True) == "### Added\n\n- Wings.\n"


@pytest.mark.parametrize("version", ["1.3.0", "1.1.0", "1.2", "1x2.0"])
def test_version_is_refused_when_the_changelog_says_nothing_of_it(version: str) -> None:
    with pytest.raises(release.CannotRelease, match=re.escape(version)):
        release.notes(CHANGELOG, version, is_draft=False)


def test_tag_is_refused_when_it_is_of_another_version() -> None:
    release.check_tag("v1.2.0", "1.2.0")
    release.check_tag("", "1.2.0")
    for tag in ("v1.2.1", "1.2.0"):
        with pytest.raises(release.CannotRelease, match=re.escape(tag)):
            release.check_tag(tag, "1.2.0")


def archive(path: Path, names: list[str], *, mode: int, mtime: int) -> Path:
    """A .tar.gz as two builders on two machines make it, differently."""
    with tarfile.open(path, "w:gz") as made:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(name), mode, mtime
            member.uid, member.uname = mtime % 1_000, f"user-{mode}"
            made.addfile(member, io.BytesIO(name.encode()))
    return path


def test_archives_of_the_same_files_become_the_same_bytes(tmp_path: Path) -> None:
    names = ["a/x.py", "a/b.py", "a/run.sh"]
    first = archive(tmp_path / "first.tar.gz", names, mode=0o664, mtime=1_700_000_000)
    second = archive(tmp_path / "second.tar.gz", names[::-1], mode=0o600, mtime=1_800_000_001)
    assert first.read_bytes() != second.read_bytes()
    for one in (first, second):
        release.settle(one, 1_750_000_000)
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as settled:
        assert {one.name: settled.extractfile(one).read() for one in settled} == {  # type: ignore[union-attr]
            name: name.encode() for name in names
        }
        assert {(one.mode, one.mtime) for one in settled} == {(0o644, 1_750_000_000)}


def test_checksums_are_those_that_sha256sum_reads(tmp_path: Path) -> None:
    files = [tmp_path / "b.whl", tmp_path / "a.tar.gz"]
    for file in files:
        file.write_text(file.name)
    (tmp_path / "SHA256SUMS").write_text(release.checksums(files))
    lines = (tmp_path / "SHA256SUMS").read_text().splitlines()
    assert lines == [
        f"{hashlib.sha256(name.encode()).hexdigest()}  {name}" for name in _names(files)
    ]


def _names(files: list[Path]) -> list[str]:
    return sorted(file.name for file in files)


def test_parts_name_no_file_of_this_machine_and_keep_hashes_that_the_lock_knows() -> None:
    def part(name: str, content: str) -> dict[str, Any]:
        file = {"type": "distribution", "url": f"file:///tmp/x/{name}.whl"}
        hashes = [{"alg": "SHA-256", "content": content}]
        site = {"type": "website", "url": f"https://{name}.example"}
        return {"name": name, "externalReferences": [{**file, "hashes": hashes}, site]}

    listed = {
        "metadata": {"component": {"name": "hourwheel"}},
        "components": [part("locked", "aa"), part("built-here", "bb"), {"name": "bare"}],
    }
    made = release.parts_for_others(listed, "1.2.0", "locked==1 \\\n    --hash=sha256:aa\n")
    assert "file:" not in str(made)
    assert made["metadata"]["component"]["purl"] == "pkg:pypi/hourwheel@1.2.0"
    locked, built, bare = made["components"]
    assert [one["content"] for one in locked["hashes"]] == ["aa"]
    assert [len(one["externalReferences"]) for one in (locked, built, bare)] == [1, 1, 0]
    assert built["hashes"] == bare["hashes"] == []


def test_release_is_refused_when_the_tag_is_of_another_version() -> None:
    done = subprocess.run(
        [sys.executable, tree.ROOT / "packaging" / "release.py", "--tag", "v0.0.0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"release: the tag is v0.0.0, and the version {hourwheel.__version__}\n"


# --- continuous integration -----------------------------------------------------------------------


def steps() -> list[tuple[str, dict[str, Any]]]:
    """All steps of all workflows, each with its file."""
    return [
        (path, step)
        for path in WORKFLOWS
        for job in yaml.safe_load(tree.text(path))["jobs"].values()
        for step in job["steps"]
    ]


def test_workflows_use_actions_by_their_commits() -> None:
    used = [(path, step["uses"]) for path, step in steps() if "uses" in step]
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one[1])] == []
    for path in WORKFLOWS:  # and say which versions these are
        for line in re.findall(r"uses: .*", tree.text(path)):
            assert re.search(r" # v\d+\.\d+\.\d+$", line), line


def test_workflows_run_what_people_run() -> None:
    targets = set(re.findall(r"^([a-z-]+):", tree.text("Makefile"), re.MULTILINE))
    commands = [step["run"] for _, step in steps() if "run" in step]
    called = {target for one in commands for target in re.findall(r"\bmake ([a-z-]+)", one)}
    assert called <= targets
    assert {"check", "test", "release", "site", "packaging-lint"} <= called | {
        "test" for one in commands if ".ci/run" in one
    }


def test_workflows_may_read_and_no_more_where_they_do_not_say_otherwise() -> None:
    for path in WORKFLOWS:
        assert yaml.safe_load(tree.text(path))["permissions"] == {"contents": "read"}, path
    secrets = [path for path in WORKFLOWS if "secrets." in tree.text(path)]
    assert secrets == []
