import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spark_jobs.runtime import packing

ROOT = Path(__file__).resolve().parents[4]


def test_the_zip_is_all_that_the_program_needs_of_us(tmp_path: Path) -> None:
    archive, program = packing.pack(ROOT, tmp_path / "out")
    names = zipfile.ZipFile(archive).namelist()
    assert {name.split("/")[0] for name in names} <= set(packing.ROOMS)
    assert {"spark_jobs/run.py", "hourwheel/errors.py", "storage/files/disk.py"} <= set(names)
    assert not [name for name in names if "__pycache__" in name]
    code = (
        f"import sys, runpy; sys.path[:] = [{str(archive)!r}] + [p for p in sys.path[1:]"
        f" if {str(ROOT)!r} != p]; sys.argv = ['x', 'audit', '--list-checks'];"
        f" import spark_jobs; assert 'rooms.zip' in spark_jobs.__file__;"
        f" runpy.run_path({str(program)!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "queue-missing" in done.stdout


def test_the_same_tree_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (packing.pack(ROOT, tmp_path / name)[0] for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_the_program_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert packing.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        str(tmp_path / "rooms.zip"),
        str(tmp_path / "hourwheel_spark.py"),
    ]
    names = zipfile.ZipFile(tmp_path / "rooms.zip").namelist()
    assert {name.split("/")[0] for name in names} == set(packing.ROOMS)
    assert packing.main([]) == 2
