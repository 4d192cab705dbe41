"""proto/SOURCES: which .proto files the committed code was generated from, as SHA-256.

`make proto` writes it behind the compiler (`python -m tests.tidy.proto_sources`); a test compares
it with the tree, so that nobody needs the compiler to see that generated code is stale or edited.
The format is that of `sha256sum`, so `sha256sum -c proto/SOURCES` says the same.
"""

import hashlib
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = "proto/SOURCES"


def content() -> str:
    """What SOURCES has to be for the tree as it is now."""
    paths = [*ROOT.glob("proto/hourwheel/**/*.proto"), *ROOT.glob("hourwheel/**/v1/*_pb2*.py*")]
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT).as_posix()}\n"
        for path in sorted(paths)
    )


def main() -> None:
    """Write SOURCES."""
    text = content()
    (ROOT / SOURCES).write_text(text)
    sys.stdout.write(f"{SOURCES}: {len(text.splitlines())} files\n")


if __name__ == "__main__":
    main()
