"""False positives of genes: python -m tests.bench.filter_rates [--write].

Prints docs/FILTER_RATES.md and the table of docs/FILTERS.md, or writes them there.

Of the messages that match a filter in no way, how many does the index say "maybe" of: for each kind
of gene, 1 to 8 bits for each tag, 1 to 10 tags a message and 1 to 5 tags wanted (`a || b || ...`).
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from filters.gene_mask import GeneMask, test_of
from hourwheel.filter_language.tree import HasTag, any_of
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneKind, GeneSpec, gene_of
from tests.bench.tag_sets import SEED, TagSets, order_sets, random_sets

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
BEGIN: Final = "<!-- begin: made by `python -m tests.bench.filter_rates --write` -->"
END: Final = "<!-- end: made by `python -m tests.bench.filter_rates --write` -->"
TAG_COUNTS: Final = tuple(range(1, 11))
WANTED_COUNTS: Final = tuple(range(1, 6))
SPECS: Final = (
    GeneSpec(GeneKind.HASH_SET),
    GeneSpec(GeneKind.OR_GENE),
    *(GeneSpec(GeneKind.BLOOM, bits) for bits in range(1, 9)),
    *(GeneSpec(GeneKind.SPARSE, bits) for bits in range(1, 9)),
)
_MESSAGES: Final = 4_000
_FILTERS: Final = 100
_NAMINGS: Final = 10

Rates: TypeAlias = dict[tuple[GeneSpec, int, int], float]
"""(spec, tags a message, tags wanted) -> false positives among what does not match, 0 to 1."""


def measure(
    sets: TagSets, specs: Sequence[GeneSpec], wanted_counts: Sequence[int], filters: int
) -> Rates:
    """Rates on one set of messages, `filters` random filters for each number of wanted tags.

    Each tag has `_NAMINGS` names in turn: with few different tags it is chance which of them have
    bits in common, and that is the same for all filters.
    """
    count = sets.tags.shape[1]
    false = {(spec, count, wanted): 0 for spec in specs for wanted in wanted_counts}
    others = dict.fromkeys(wanted_counts, 0)
    rng = np.random.default_rng(SEED)
    for naming in range(_NAMINGS):
        named = sets.renamed(naming)
        texts = [[named.vocabulary[tag] for tag in row] for row in named.tags.tolist()]
        genes = {
            spec: np.array([gene_of(spec, each) for each in texts], np.uint64) for spec in specs
        }
        for wanted_count in wanted_counts:
            for _ in range(filters // _NAMINGS or 1):
                wanted = rng.choice(len(named.vocabulary), wanted_count, replace=False).tolist()
                tree = any_of(HasTag(named.vocabulary[tag]) for tag in wanted)
                matches = named.carries_one_of(wanted)
                others[wanted_count] += int((~matches).sum())
                for spec in specs:
                    maybe = GeneMask(test_of(tree, spec)).maybe(genes[spec])
                    assert not (matches & ~maybe).any(), "a message that matches was left out"
                    false[spec, count, wanted_count] += int((maybe & ~matches).sum())
    return {key: found / others[key[2]] for key, found in false.items()}


def measure_all(source: str) -> tuple[Rates, str]:
    """(all rates, where the messages are from); `source` is "random" or "orders"."""
    rates: Rates = {}
    where = ""
    for count in TAG_COUNTS:
        sets = random_sets(_MESSAGES, count) if source == "random" else order_sets(count)
        where = sets.source
        rates.update(measure(sets, SPECS, WANTED_COUNTS, _FILTERS))
    return rates, where


def mean(rates: Rates, spec: GeneSpec, tag_counts: Sequence[int] = TAG_COUNTS) -> float:
    """Of all measured rates of a spec, with so many tags a message."""
    found = [rate for (each, tags, _), rate in rates.items() if each == spec and tags in tag_counts]
    return sum(found) / len(found)


def percent(rate: float) -> str:
    """A rate for a table."""
    return f"{100 * rate:.2f}" if rate < 0.1 else f"{100 * rate:.0f}"


def page(measured: dict[str, tuple[Rates, str]]) -> Iterator[str]:
    """The lines of docs/FILTER_RATES.md."""
    heads = " | ".join(f"{name}, {tags}" for name in measured for tags in _GROUPS)
    yield from (
        "# False-positive rates of tag genes",
        "",
        "Made by `python -m tests.bench.filter_rates --write`; what it means, and how to choose:",
        "[FILTERS.md](FILTERS.md). Of the messages that do *not* match a filter, how many, in %,",
        "the index cannot pass over. They are read and checked, so a false positive costs time and",
        f"never shows. {_FILTERS} random filters `a || b || ...` for each cell, {_NAMINGS} namings",
        "of the tags.",
        "",
        "## Summary",
        "",
        "Mean over 1 to 5 wanted tags, for messages with 1 to 3, 4 to 10 and 1 to 10 tags; and of",
        "both kinds of messages, by which the default is chosen.",
        "",
        f"| Gene | {heads} | all |",
        f"|---|{'---|' * (len(measured) * len(_GROUPS) + 1)}",
    )
    for spec in SPECS:
        cells = [
            percent(mean(rates, spec, counts))
            for rates, _ in measured.values()
            for counts in _GROUPS.values()
        ]
        means = [mean(rates, spec) for rates, _ in measured.values()]
        cells.append(percent(sum(means) / len(means)))
        yield f"| {_name(spec)} | {' | '.join(cells)} |"
    for name, (rates, where) in measured.items():
        yield from ("", f"## Messages: {name}", "", f"{where[0].upper()}{where[1:]}.")
        for wanted in WANTED_COUNTS:
            heads = " | ".join(map(str, TAG_COUNTS))
            title = f"{wanted} wanted, tags a message:"
            yield from ("", f"| {title} | {heads} |", f"|---|{'---|' * len(TAG_COUNTS)}")
            for spec in SPECS:
                cells = (percent(rates[spec, count, wanted]) for count in TAG_COUNTS)
                yield f"| {_name(spec)} | {' | '.join(cells)} |"


_GROUPS: Final = {"1-3": (1, 2, 3), "4-10": tuple(range(4, 11)), "1-10": TAG_COUNTS}


def _name(spec: GeneSpec) -> str:
    return f"**{spec.text}** (default)" if spec == DEFAULT_SPEC else spec.text


def short_table(measured: dict[str, tuple[Rates, str]]) -> Iterator[str]:
    """The lines of the table in docs/FILTERS.md: mean over the numbers of wanted tags."""
    heads = " | ".join(f"{name}: {tags}" for name in measured for tags in _SHOWN)
    yield f"| Gene, tags a message | {heads} |"
    yield f"|---|{'---|' * (len(measured) * len(_SHOWN))}"
    for spec in SPECS:
        cells = (
            percent(mean(rates, spec, (tags,))) for rates, _ in measured.values() for tags in _SHOWN
        )
        yield f"| {_name(spec)} | {' | '.join(cells)} |"


_SHOWN: Final = (1, 2, 3, 5, 8, 10)


def main() -> None:
    """Measure: some minutes."""
    measured = {source: measure_all(source) for source in ("random", "orders")}
    text = "\n".join(page(measured)) + "\n"
    table = "\n".join(short_table(measured))
    if "--write" not in sys.argv[1:]:
        sys.stdout.write(f"{text}\n{table}\n")
        return
    (DOCS / "FILTER_RATES.md").write_text(text)
    users = DOCS / "FILTERS.md"
    head, rest = users.read_text().split(BEGIN)
    users.write_text(f"{head}{BEGIN}\n\n{table}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
