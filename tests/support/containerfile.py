"""Reading a Containerfile: its instructions, without what a shell or a builder would do to them."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Self

_ARGUMENT: Final = re.compile(r"\$\{(\w+)\}")


class Instruction(NamedTuple):
    """One line, with what was continued on others."""

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """Of a list in exec form. Raises ValueError where it is in shell form."""
        return [str(word) for word in json.loads(self.text)]


@dataclass(frozen=True)
class Containerfile:
    """The instructions in order. A stage begins with its FROM; what comes before is of no stage."""

    instructions: list[Instruction]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises OSError where there is no such file."""
        lines = [one for one in path.read_text().splitlines() if not one.lstrip().startswith("#")]
        joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
        found = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
        return cls([Instruction(name.upper(), text) for name, text in found])

    def images(self) -> list[str]:
        """What each stage is made from, with the defaults of arguments filled in."""
        arguments = dict(one.text.split("=", 1) for one in self.all("ARG") if "=" in one.text)
        return [
            _ARGUMENT.sub(lambda found: arguments[found[1]], one.text.split()[0])
            for one in self.all("FROM")
        ]

    def all(self, name: str) -> list[Instruction]:
        """The instructions of one name, of all stages."""
        return [one for one in self.instructions if one.name == name]

    def last_stage(self) -> "Containerfile":
        """What the image itself consists of."""
        first = max(at for at, one in enumerate(self.instructions) if one.name == "FROM")
        return Containerfile(self.instructions[first:])

    def the(self, name: str) -> Instruction:
        """The only instruction of one name. Raises ValueError where there is none, or another."""
        (found,) = self.all(name)
        return found

    def health_check(self) -> list[str]:
        """The command of HEALTHCHECK."""
        options, _, command = self.the("HEALTHCHECK").text.partition("CMD")
        if not all(word.startswith("--") for word in options.split()):
            raise ValueError(f"HEALTHCHECK {options}: neither options nor CMD")
        return Instruction("CMD", command).words

    def copied(self) -> list[str]:
        """Paths that are copied from the tree, not from another stage."""
        return [
            path
            for one in self.all("COPY")
            if not one.text.startswith("--from")
            for path in one.text.split()[:-1]
        ]
