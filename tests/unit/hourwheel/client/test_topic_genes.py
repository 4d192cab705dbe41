from hourwheel.client import sender
from hourwheel.client.sender import TopicGenes
from hourwheel.filter_language.wire import gene_to_wire
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneKind, GeneSpec
from hourwheel.v1 import filter_pb2

BLOOM = GeneSpec(GeneKind.BLOOM, 2, ("region",))


def test_of_when_nobody_said_anything() -> None:
    assert TopicGenes().of("orders") == DEFAULT_SPEC


def test_of_when_a_topic_wants_others_and_then_the_default() -> None:
    genes = TopicGenes()
    genes.adopt("orders", gene_to_wire(BLOOM))
    assert (genes.of("orders"), genes.of("bills")) == (BLOOM, DEFAULT_SPEC)
    genes.adopt("orders", gene_to_wire(DEFAULT_SPEC))  # it was deleted and made anew
    assert genes.of("orders") == DEFAULT_SPEC


def test_adopt_when_the_kind_is_of_a_newer_node() -> None:
    genes = TopicGenes()
    genes.adopt("orders", gene_to_wire(BLOOM))
    newer = filter_pb2.GeneSpec()
    newer.MergeFromString(b"\x08\x63")  # kind 99
    genes.adopt("orders", newer)
    assert genes.of("orders") == DEFAULT_SPEC


def test_adopt_when_there_are_very_many_topics() -> None:
    genes = TopicGenes()
    for number in range(sender.GENE_TOPICS_MAX + 1):
        genes.adopt(str(number), gene_to_wire(BLOOM))
    assert genes.of("0") == DEFAULT_SPEC
    assert genes.of("1") == genes.of(str(sender.GENE_TOPICS_MAX)) == BLOOM
