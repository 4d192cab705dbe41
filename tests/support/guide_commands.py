"""The commands of a documentation page: what its indented lines tell a reader to type."""

import re
import shlex
from typing import Final

from tests.tidy import tree

_BLOCK_LINE: Final = re.compile(r"^ {4,}(\S.*)$", re.MULTILINE)


def commands_of(page: str, program: str) -> list[list[str]]:
    """The words behind `program` of each of its commands, in the order of the page.

    Lines that end with a backslash go on with the next; a comment is left out.
    """
    text = tree.text(page).replace("\\\n", " ")
    lines = [line for line in _BLOCK_LINE.findall(text) if line.startswith(f"{program} ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


def fenced(page: str, language: str) -> list[str]:
    """The text of each block in this language, also of those in lists."""
    block = re.compile(rf"^( *)```{language}\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
    return [
        re.sub(rf"^{indent}", "", text, flags=re.MULTILINE)
        for indent, text in block.findall(tree.text(page))
    ]
