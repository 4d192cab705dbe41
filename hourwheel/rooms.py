"""The server's rooms (`node`, `storage`, ...), for those parts of this package that start them.

They lie beside this package in a checkout, and in a folder of it in a wheel (see setup.py). Only
the server's commands and `hourwheel.testing` load them.
"""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

FOLDER: Final = Path(__file__).resolve().parent / "_rooms"
"""Where a wheel has the rooms. They come first: others may have a package called `node`, too."""


def load(name: str) -> ModuleType:
    """A module of a room.

    Raises:
        ModuleNotFoundError: what it needs is not installed.
    """
    if FOLDER.is_dir() and str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    return import_module(name)
