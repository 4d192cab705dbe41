"""Which genes a producer makes for each topic: the default, until a node says what a topic wants.

Genes of another specification are not used by the node: filters then read those messages one by
one. So being wrong costs speed and never a message, and a producer may begin without asking.
"""

from typing import Final

from hourwheel import errors
from hourwheel.filter_language.wire import gene_from_wire
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneSpec
from hourwheel.v1 import filter_pb2

TOPICS_MAX: Final = 4_096
"""So many topics with a specification of their own are remembered; the oldest are forgotten."""


class TopicGenes:
    """What one producer knows."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._specs: dict[str, GeneSpec] = {}

    def of(self, topic: str) -> GeneSpec:
        """How to make the genes of the next batch."""
        return self._specs.get(topic, DEFAULT_SPEC)

    def adopt(self, topic: str, expected: filter_pb2.GeneSpec) -> None:
        """A node says how the topic wants them; what this program cannot make is let be."""
        self._specs.pop(topic, None)
        try:
            spec = gene_from_wire(expected)
        except errors.InvalidArgument:
            return
        if spec != DEFAULT_SPEC:
            self._specs[topic] = spec
        if len(self._specs) > TOPICS_MAX:
            del self._specs[next(iter(self._specs))]
