"""The filter of a group's subscription, and whether what consumers say of it agrees."""

from typing import NamedTuple

from hourwheel import errors
from hourwheel.filter_language.text import FilterExpression
from hourwheel.types import GroupId, TopicId
from storage.views.catalog import Catalog
from storage.views.catalog_items import Group, Subscription


class Subscribed(NamedTuple):
    """What a Receive reads by."""

    subscription: Subscription
    group: Group
    requested: FilterExpression | None = None
    """The group's filter as the caller knows it, in canonical form; None: it does not say."""
    call_filter: FilterExpression | None = None
    """The filter of this call alone, on one of the cluster's own topics; None for everything."""


def stored(canonical: FilterExpression | None) -> FilterExpression | None:
    """A filter in canonical form as a subscription has it: None for everything."""
    return None if canonical == FilterExpression.everything() else canonical


def find_mismatch(
    catalog: Catalog, group_id: GroupId, topic_id: TopicId, requested: FilterExpression
) -> errors.SubscriptionMismatch | None:
    """Why a caller that names this filter is not served; None: the subscription has the same one.

    Where no subscription is left, nothing is served anyway.
    """
    known = catalog.find_subscription(group_id, topic_id)
    if known is None or stored(requested) == known.filter:
        return None
    kept = known.filter or FilterExpression.everything()
    group, topic = catalog.find_group_by_id(group_id), catalog.find_topic_by_id(topic_id)
    names = [one.name if one is not None else "" for one in (group, topic)]
    return errors.SubscriptionMismatch(
        f"group {names[0]!r} wants {_words(kept)} of topic {names[1]!r}, not {_words(requested)}",
        group=names[0],
        topic=names[1],
        subscription=_words(kept),
        receive=_words(requested),
    )


def find_replaced(catalog: Catalog, group_id: GroupId, token: int) -> errors.MemberReplaced | None:
    """Why the member of a broadcast that joined with this token is not served; None: it is."""
    group = catalog.find_group_by_id(group_id)
    if group is None or group.member_token == token:
        return None
    return errors.MemberReplaced(
        f"another process has joined by the name of {group.name!r}, and receives in its place",
        group=group.name,
    )


def check_member(catalog: Catalog, group: str, topic: str, token: int) -> None:
    """Whether the member of a broadcast may receive; its group is never made by receiving.

    Raises:
        UnknownGroup: it was away for too long, or never joined.
        UnknownTopic: there is none.
        FailedPrecondition: it has not joined for this topic, or that was deleted since.
        MemberReplaced: see `find_replaced`.
    """
    found = catalog.find_group(group)
    if found is None:
        raise errors.UnknownGroup(
            f"{group!r} is no member any more: it was away for too long, and what was released"
            " meanwhile is not kept for it; join again",
            group=group,
        )
    replaced = find_replaced(catalog, found.group_id, token)
    if replaced is not None:
        raise replaced
    if catalog.find_subscription(found.group_id, catalog.get_topic(topic).topic_id) is None:
        raise errors.FailedPrecondition(
            f"{group!r} has not joined for topic {topic!r}, or that was deleted since; join again",
            group=group,
            topic=topic,
        )


def _words(wanted: FilterExpression) -> str:
    where = ", checked at the client" if wanted.check_at_client else ""
    return f"{wanted.kind} {wanted.text!r}{where}"
