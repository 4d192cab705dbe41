"""Names of topics and groups: which are allowed, and those of the cluster's own topics."""

import re
from typing import Final

from hourwheel import errors
from hourwheel.formats.member_group import is_member_group, membership_of
from hourwheel.limits import NAME_BYTES_MAX

_NAME: Final = re.compile(rf"[A-Za-z0-9_.|-]{{1,{NAME_BYTES_MAX}}}")
_RULE: Final = f"1 to {NAME_BYTES_MAX} letters, digits, '_', '.', '|' or '-'"
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"


def validate_topic_name(name: str) -> None:
    """Refuse a name that no topic may be created by.

    Raises:
        InvalidTopic: empty, too long, or with a character that is not allowed; '%' is kept for the
            cluster's own topics.
    """
    if not _NAME.fullmatch(name):
        raise errors.InvalidTopic(f"a topic's name is {_RULE}, not {name[:200]!r}")


def validate_group_name(name: str) -> None:
    """Refuse a name that no group may be created by.

    Raises:
        InvalidGroup: as for topics.
    """
    if not _NAME.fullmatch(name):
        raise errors.InvalidGroup(f"a group's name is {_RULE}, not {name[:200]!r}")


def validate_known_group_name(name: str) -> None:
    """Refuse a name that no group has: neither one that was created by it, nor a member's.

    Raises:
        InvalidGroup: as above.
    """
    if is_member_group(name):
        membership_of(name)
    else:
        validate_group_name(name)


def retry_topic_name(group: str, topic: str) -> str:
    """Name of the internal topic that takes a group's retries of one topic.

    "%RETRY%<group>|<topic>", in which a '|' of the group is written "%7C": else the retries of
    group "a|b" from topic "c" and those of group "a" from topic "b|c" would share one.
    """
    return f"{RETRY_PREFIX}{group.replace('|', '%7C')}|{topic}"


def dead_letter_topic_name(group: str) -> str:
    """Name of the internal topic that takes a group's dead letters: "%DLQ%<group>"."""
    return f"{DEAD_LETTER_PREFIX}{group}"
