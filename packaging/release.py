"""Make a release of what is committed: `make release` runs it, in an environment of its own.

    git archive -> sdist -> wheel -> SBOM of what the wheel needs -> SHA256SUMS, in dist/

Whoever has the same commit gets the same bytes of sdist and wheel: files and times are those of the
commit, and both are built twice and compared. The SBOM (CycloneDX) lists what is installed for a
node, as requirements/node.txt has it; it is about the platform that it is made on.

Standard library only, but for the two programs of requirements/build.txt and release.txt.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

_BUILD: Final = "from setuptools import build_meta as b; b.build_{}({!r})"
_PIP: Final = ("-m", "pip", "--disable-pip-version-check", "-q")
_UMASK: Final = 0o022


class CannotRelease(Exception):
    """What has to be put right first."""


def notes(changelog: str, version: str, *, is_draft: bool) -> str:
    """What the changelog says of a version; for a draft, what it says is not released yet.

    Raises:
        CannotRelease: it has no dated entry for the version, or an empty one.
    """
    heading = r"\[Unreleased\]" if is_draft else rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d"
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        wanted = "Unreleased" if is_draft else f"[{version}] - <date>"
        raise CannotRelease(f"CHANGELOG.md says nothing under {wanted}")
    return found[1].strip() + "\n"


def check_tag(tag: str, version: str) -> None:
    """Raises CannotRelease where a tag is of another version."""
    if tag and tag != f"v{version}":
        raise CannotRelease(f"the tag is {tag}, and the version {version}")


def settle(archive: Path, epoch_s: int) -> None:
    """Write a .tar.gz again so that it depends on names, modes and content of its files only."""
    unsettled = archive.with_suffix(".unsettled")
    archive.rename(unsettled)
    with (
        tarfile.open(unsettled) as before,
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", mtime=epoch_s, fileobj=raw) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as after,
    ):
        for member in sorted(before.getmembers(), key=lambda one: one.name):
            member.mtime, member.pax_headers = epoch_s, {}
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            after.addfile(member, before.extractfile(member) if member.isfile() else None)
    unsettled.unlink()


def checksums(files: Iterable[Path]) -> str:
    """One line for each file, as `sha256sum --check` reads them."""
    return "".join(
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
        for file in sorted(files, key=lambda one: one.name)
    )


def parts_for_others(listed: dict[str, Any], version: str, locked: str) -> dict[str, Any]:
    """An SBOM without what is true of this machine only.

    Files in temporary folders go; their hashes stay where the lock knows them, that is, where they
    are of what the index has.
    """
    root = listed["metadata"]["component"]
    root["version"], root["purl"] = version, f"pkg:pypi/hourwheel@{version}"
    for component in listed["components"]:
        told = component.get("externalReferences", [])
        component["externalReferences"] = [
            one for one in told if not one["url"].startswith("file:")
        ]
        component["hashes"] = [
            hashed
            for one in told
            for hashed in one.get("hashes", [])
            if f"--hash=sha256:{hashed['content']}" in locked
        ]
    return listed


def build(root: Path, folder: Path, epoch_s: int) -> list[Path]:
    """Build sdist and wheel of the last commit into a new `folder`."""
    source = folder / "source"
    source.mkdir(parents=True)
    committed = _git(root, "-c", f"tar.umask={_UMASK:04o}", "archive", "--format=tar", "HEAD")
    with tempfile.TemporaryFile() as tar:
        tar.write(committed)
        tar.seek(0)
        with tarfile.open(fileobj=tar) as archive:
            archive.extractall(source, filter="tar")
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s)}
    _python(source, "-c", _BUILD.format("sdist", str(folder)), environ=environ)
    (sdist,) = folder.glob("*.tar.gz")
    settle(sdist, epoch_s)
    # The wheel is built of the sdist, so that whoever builds from it gets the same one.
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="tar")
    (unpacked,) = (folder / "unpacked").iterdir()
    _python(unpacked, "-c", _BUILD.format("wheel", str(folder)), environ=environ)
    (wheel,) = folder.glob("*.whl")
    return [sdist, wheel]


def list_parts(root: Path, wheel: Path, folder: Path, target: Path) -> None:
    """Install the wheel with what a node needs, locked, and write what is there as an SBOM."""
    wheels, environment = folder / "wheels", folder / "environment"
    locked = root / "requirements" / "node.txt"
    _python(
        root,
        *(*_PIP, "wheel", "--no-build-isolation", "--require-hashes", "--no-deps"),
        *("--wheel-dir", wheels, "-r", locked),
    )
    shutil.copy(wheel, wheels)
    _python(root, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    files = sorted(wheels.glob("*.whl"))
    _python(root, *_PIP, "--python", python, "install", "--no-index", "--no-deps", *files)
    _python(root, *_PIP, "--python", python, "check")
    program = Path(sys.executable).with_name("cyclonedx-py")
    _run(
        root,
        *(program, "environment", "--output-reproducible", "--mc-type", "application"),
        *("--pyproject", root / "pyproject.toml", "--output-file", target, python),
    )
    version = wheel.name.split("-")[1]
    listed = parts_for_others(json.loads(target.read_text()), version, locked.read_text())
    target.write_text(json.dumps(listed, indent=2, sort_keys=True) + "\n")


def release(root: Path, target: Path, *, is_draft: bool, tag: str) -> list[Path]:
    """Make everything in `target`; the files that are to be published.

    Raises:
        CannotRelease: what is committed is no release.
        CalledProcessError: a step has failed, and has said why.
    """
    init = (root / "hourwheel" / "__init__.py").read_text()
    (version,) = re.findall(r'^__version__ = "([^"]+)"', init, re.MULTILINE)
    check_tag(tag, version)
    said = notes((root / "CHANGELOG.md").read_text(), version, is_draft=is_draft)
    if not is_draft and _git(root, "status", "--porcelain"):
        raise CannotRelease("there are changes that are not committed")
    epoch_s = int(_git(root, "log", "-1", "--pretty=%ct"))
    os.umask(_UMASK)
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        first, second = (build(root, folder / name, epoch_s) for name in ("first", "second"))
        if checksums(first) != checksums(second):
            raise CannotRelease(f"two builds differ:\n{checksums(first)}{checksums(second)}")
        files = [Path(shutil.copy(file, target)) for file in first]
        files.append(target / f"hourwheel-{version}.cdx.json")
        list_parts(root, files[1], folder, files[-1])
    (target / "SHA256SUMS").write_text(checksums(files))
    (target / "NOTES.md").write_text(said)
    return [*files, target / "SHA256SUMS"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a release of the tree that this file lies in; the process's exit code."""
    parser = argparse.ArgumentParser(description="Make a release of what is committed, in dist/.")
    parser.add_argument("--draft", action="store_true", help="of what is not released yet")
    parser.add_argument("--tag", default="", help="refuse another version than this tag's")
    parsed = parser.parse_args(arguments)
    root = Path(__file__).resolve().parents[1]
    try:
        files = release(root, root / "dist", is_draft=parsed.draft, tag=parsed.tag)
    except CannotRelease as error:
        sys.stderr.write(f"release: {error}\n")
        return 1
    sys.stdout.write("".join(f"{file.relative_to(root)}\n" for file in files))
    return 0


def _git(root: Path, *words: str) -> bytes:
    return subprocess.run(("git", *words), cwd=root, check=True, stdout=subprocess.PIPE).stdout


def _python(cwd: Path, *words: str | Path, environ: dict[str, str] | None = None) -> None:
    _run(cwd, sys.executable, *words, environ=environ)


def _run(cwd: Path, *words: str | Path, environ: dict[str, str] | None = None) -> None:
    """Run a step quietly: what it says is shown where it fails."""
    command = [str(word) for word in words]
    done = subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        done.check_returncode()


if __name__ == "__main__":
    sys.exit(main())
