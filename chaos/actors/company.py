"""Who publishes beside the load's own lists: a coroutine for each actor that the mix wants."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from chaos.actors.clockmaker import Clockmaker
from chaos.actors.grocer import publish_perishables
from chaos.actors.namer import publish_unique
from chaos.actors.postponer import Postponer
from chaos.actors.pupils import publish_in_order
from chaos.actors.ranker import publish_ranked
from hourwheel import AsyncAdmin, AsyncProducer

if TYPE_CHECKING:
    from chaos.workload import Workload


def publishers(
    load: "Workload", producer: AsyncProducer, admin: AsyncAdmin
) -> list[Coroutine[Any, Any, None]]:
    """Each ends when there shall be no more messages."""
    mix, found = load.mix, list[Coroutine[Any, Any, None]]()
    if mix.unique_names:
        found.append(publish_unique(load, producer))
    if mix.has_expiry:
        found.append(publish_perishables(load, producer))
    if mix.has_priorities:
        found.append(publish_ranked(load, producer))
    if mix.has_bulk_moves:
        found.append(Postponer(load, producer, admin).work())
    if mix.has_order:
        found.append(publish_in_order(load, producer))
    if mix.has_recurrences:
        found.append(Clockmaker(load, admin).work())
    return found
