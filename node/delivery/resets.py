"""Groups that begin anew in a topic: what they must not be given, and which receipts are stale.

From when the record is appended until it is applied the views still have the former window. So the
group gets nothing of the topic meanwhile, and nothing is resolved for it: a row that came behind
the record would be about the new window.
"""

from hourwheel.formats.receipt import Receipt
from hourwheel.types import GroupId, TopicId, topic_of
from node.delivery.message_lease import SPARSE_ID
from storage.views.catalog import Catalog
from storage.views.catalog_items import NO_RESET


class Resets:
    """The resets of one mastership that are on their way, and what those before it left."""

    def __init__(self, catalog: Catalog) -> None:
        """None is on its way. `catalog`: what is applied."""
        self._catalog = catalog
        self._under_way: dict[tuple[GroupId, TopicId], TopicId] = {}
        """(group, topic) -> the topic for its retries, until it is applied."""
        self.count = 0
        """How many began: what was found in windows before one of them is to be looked at again."""

    def begin(self, group_id: GroupId, topic_id: TopicId) -> None:
        """The record is appended next."""
        known = self._catalog.find_subscription(group_id, topic_id)
        if known is not None:
            self._under_way[group_id, topic_id] = known.retry_topic_id
            self.count += 1

    def end(self, group_id: GroupId, topic_id: TopicId) -> None:
        """It is applied, or never will be."""
        self._under_way.pop((group_id, topic_id), None)

    def is_under_way(self, group_id: GroupId, topic_id: TopicId) -> bool:
        """Whether a record is appended and not applied: in the turn that applies it, it is over."""
        former = self._under_way.get((group_id, topic_id))
        if former is None:
            return False
        known = self._catalog.find_subscription(group_id, topic_id)
        return known is not None and known.retry_topic_id == former

    def is_stale(self, receipt: Receipt) -> bool:
        """Whether the group was reset behind the lease of a receipt.

        The lease may be of an earlier epoch, or of a retry: the topic of those goes with a reset.
        """
        catalog, topic_id = self._catalog, topic_of(receipt.topic_queue)
        group_id = GroupId(receipt.group_id)
        if catalog.find_topic_by_id(topic_id) is None:
            return catalog.was_given(topic_id)
        retries = catalog.find_subscription_by_retry(topic_id)
        if retries is not None and retries.group_id == group_id:
            return self.is_under_way(group_id, retries.topic_id)
        known = catalog.find_subscription(group_id, topic_id)
        if known is None:
            return False
        place = receipt.epoch, receipt.lease_id & ~SPARSE_ID
        is_before = known.reset != NO_RESET and place <= known.reset[:2]
        return is_before or self.is_under_way(group_id, topic_id)
