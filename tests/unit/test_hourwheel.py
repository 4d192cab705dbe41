import subprocess
import sys

import pytest

import hourwheel


@pytest.mark.parametrize("name", hourwheel.__all__)
def test_public_names_when_asked_for(name: str) -> None:
    assert getattr(hourwheel, name) is not None
    assert name in dir(hourwheel)


def test_public_names_when_unknown() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = hourwheel.nonsense  # type: ignore[attr-defined]


def test_vocabulary_when_imported_alone() -> None:
    code = (
        "import sys, hourwheel.errors;"
        "import hourwheel.formats.record_batch, hourwheel.formats.message_id;"
        "print(sorted({'grpc', 'asyncio', 'typer', 'rich', 'google'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
