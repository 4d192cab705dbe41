"""Genes and their specs' numbers lie in the log: they are the same for ever, in any language.

`genes.json` holds the XXH3 of each item (a property's is of name, zero byte, value), and for each
spec its number and the genes of a few messages, as hexadecimal. The second test makes them again
from the words of docs/FORMATS.md alone.
"""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from xxhash import xxh3_64_intdigest

from hourwheel.formats.tag_gene import GENE_UNKNOWN, GeneKind, GeneSpec, gene_of

VECTORS: Final[dict[str, Any]] = json.loads(
    Path(__file__).with_name("genes.json").read_text(encoding="utf-8")
)
SPECS: Final[list[dict[str, Any]]] = VECTORS["specs"]
HASHES: Final = {item: int(text, 16) for item, text in VECTORS["item_hashes"].items()}


@pytest.mark.parametrize("vector", SPECS, ids=lambda vector: str(vector["number"]))
def test_genes_when_golden(vector: dict[str, Any]) -> None:
    spec = GeneSpec(GeneKind(vector["kind"]), vector["bits_per_item"], tuple(vector["properties"]))
    assert spec.number == vector["number"]
    for each in vector["genes"]:
        properties = [(name, value) for name, value in each["properties"]]
        assert f"{gene_of(spec, each['tags'], properties):016x}" == each["gene"]


@pytest.mark.parametrize("vector", SPECS, ids=lambda vector: str(vector["number"]))
def test_genes_when_made_by_the_words_of_the_page(vector: dict[str, Any]) -> None:
    words = "\0".join((vector["kind"], str(vector["bits_per_item"]), *vector["properties"]))
    assert vector["number"] == xxh3_64_intdigest(words.encode()) % 2**32
    for each in vector["genes"]:
        items = [*each["tags"]]
        items += [f"{n}\0{v}" for n, v in each["properties"] if n in vector["properties"]]
        assert int(each["gene"], 16) == by_words(vector, [HASHES[item] for item in items])


def by_words(vector: dict[str, Any], hashes: list[int]) -> int:
    gene = 0
    for found in hashes:
        match vector["kind"]:
            case "sparse":
                for place in range(vector["bits_per_item"]):
                    gene |= 1 << (found >> 6 * place) % 64
            case "bloom":
                for place in range(vector["bits_per_item"]):
                    gene |= 1 << (found + place * ((found >> 32) | 1)) % 64
            case _:
                gene |= found
    is_several = vector["kind"] == "hash-set" and len(hashes) > 1
    return GENE_UNKNOWN if is_several else gene


def test_hashes_when_golden() -> None:
    assert {item: xxh3_64_intdigest(item.encode()) for item in HASHES} == HASHES
