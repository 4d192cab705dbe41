"""Filters: how fast blocks of messages are told apart, by genes and exactly, on one core."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from filters.compile import BlockFilter, compile_filter
from hourwheel.filter_language.text import FilterExpression
from hourwheel.formats.meta import MessageMeta, encode
from hourwheel.formats.tag_gene import DEFAULT_SPEC, GeneKind, GeneSpec, gene_of
from storage.views.unit import UNIT
from tests.bench import filter_rates
from tests.bench.results import Report, at_least
from tests.bench.sizes import Size
from tests.bench.tag_sets import order_sets, random_sets

_SEED: Final = 7
_ROUNDS: Final = 7
_MASK: Final = at_least(200)
_SQL: Final = at_least(0.5)
_PREFILTER: Final = at_least(10)
_TAG_FILTERS: Final = ("a", "a || b", "a && (b || c)", "a || b || c || d || e")
_SQL_FILTERS: Final = (
    "region = 'eu'",
    "amount > 100.5",
    "region = 'eu' AND amount > 100",
    "created BETWEEN 1700000000000 AND 1700000500000",
    "status CONTAINS 'ship'",
    "region IN ('eu', 'us') AND NOT (amount < 5 OR status = 'canceled') OR created IS NULL",
)
_CUSTOMERS: Final = 100
_RARE: Final = "customer = 'c-7' AND amount > 100"
"""One message in a hundred is of that customer."""


async def run(size: Size, _: Path) -> Report:
    """Masks over genes, exact checks of metas, both together; rates of the gene by default."""
    report = Report(
        [
            f"CPU time of one thread; median of {_ROUNDS} rounds",
            "million messages a second: how many are looked at, whether they match or not",
        ]
    )
    _masks(report, size.pick(20_000, 1 << 20, 1 << 22))
    _exact(report, size.pick(500, 20_000, 100_000))
    _rates(report, size.pick(2, 20, 100))
    return report


def _masks(report: Report, count: int) -> None:
    genes = np.random.default_rng(_SEED).integers(0, 2**63, count, np.uint64)
    units = np.zeros(count, UNIT)
    units["tag_gene"] = genes
    for spec in (DEFAULT_SPEC, GeneSpec(GeneKind.HASH_SET)):
        for text in _TAG_FILTERS:
            masks = compile_filter(FilterExpression.tags(text), spec)
            _add_mask(report, f"mask {text}, {spec.text}", masks, genes, has_target=True)
    masks = compile_filter(FilterExpression.tags(_TAG_FILTERS[0]), DEFAULT_SPEC)
    _add_mask(report, "mask a, genes 64 bytes apart", masks, units["tag_gene"], has_target=False)
    for wanted in (64, 256):
        text = " || ".join(f"tag-{number}" for number in range(wanted))
        masks = compile_filter(FilterExpression.tags(text), DEFAULT_SPEC)
        name = f"mask, {wanted} tags wanted"
        _add_mask(report, name, masks, genes[: count // 8], has_target=False)


def _add_mask(
    report: Report, name: str, masks: BlockFilter, genes: NDArray[Any], *, has_target: bool
) -> None:
    rates = _rates_of(len(genes), lambda: masks.maybe(genes))
    report.add_median(name, rates, "M entries/s", _MASK if has_target else None)


def _exact(report: Report, count: int) -> None:
    rng = random.Random(_SEED)
    spec = GeneSpec(properties=("customer",))
    messages = [_message(rng) for _ in range(count)]
    genes = np.array([gene_of(spec, each.tags, each.properties) for each in messages], np.uint64)
    encoded = [encode(each).raw for each in messages]
    metas = b"".join(encoded)
    lengths = np.array([len(raw) for raw in encoded])
    starts = np.cumsum(lengths) - lengths
    note = f"metas of {len(metas) / count:.0f} bytes: a tag, a key, 5 properties"

    def check(kept: BlockFilter) -> None:
        kept.exact(metas, starts, lengths)

    for text in ("paid", "paid && !open"):
        wanted = compile_filter(FilterExpression.tags(text), spec)
        rates = _rates_of(count, lambda wanted=wanted: check(wanted))
        report.add_median(f"exact {text}", rates, "M messages/s", _SQL, note)
    for text in _SQL_FILTERS:
        wanted = compile_filter(FilterExpression.sql(text), spec)
        rates = _rates_of(count, lambda wanted=wanted: check(wanted))
        report.add_median(f"exact {text}", rates, "M messages/s", _SQL, note)

    rare = compile_filter(FilterExpression.sql(_RARE), spec)

    def check_survivors() -> int:
        rows = np.flatnonzero(rare.maybe(genes))
        return int(rare.exact(metas, starts[rows], lengths[rows]).sum())

    kept = len(np.flatnonzero(rare.maybe(genes)))
    note = f"{kept / count:.2%} pass the mask, {check_survivors() / count:.2%} match"
    rates = _rates_of(count, check_survivors)
    report.add_median(f"gene, then exact: {_RARE}", rates, "M messages/s", _PREFILTER, note)


def _message(rng: random.Random) -> MessageMeta:
    amount = rng.randrange(1, 500_000)
    return MessageMeta(
        tags=(rng.choice(("paid", "open", "closed")),),
        keys=(f"order-{rng.randrange(1_000_000)}",),
        properties=(
            ("region", rng.choice(("eu", "us", "asia"))),
            ("amount", str(amount / 100 if rng.random() < 0.5 else amount)),
            ("status", rng.choice(("delivered", "shipped", "canceled"))),
            ("created", str(1_700_000_000_000 + rng.randrange(1_000_000_000))),
            ("customer", f"c-{rng.randrange(_CUSTOMERS)}"),
        ),
    )


def _rates(report: Report, filters: int) -> None:
    for count in (1, 3, 5, 10):
        for sets in (random_sets(1_000, count), order_sets(count)):
            rates = filter_rates.measure(sets, (DEFAULT_SPEC,), (1, 5), filters)
            for (spec, _, wanted), rate in rates.items():
                name = f"false positives of {spec.text}: {count} tags a message, {wanted} wanted"
                report.add(name, 100 * rate, "%", None, sets.source)


def _rates_of(count: int, work: Callable[[], object]) -> list[float]:
    """Millions a second, of each round but the first one, which allocates."""
    rates = []
    for _ in range(_ROUNDS + 1):
        begun = time.process_time()
        work()
        rates.append(count / max(time.process_time() - begun, 1e-9) / 1e6)
    return rates[1:]
