"""Files as they were when a format was frozen: tests/golden/*.hex."""

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden"


def golden(name: str) -> bytes:
    """The bytes of one golden file."""
    return bytes.fromhex((FOLDER / f"{name}.hex").read_text())
