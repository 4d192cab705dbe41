"""Names in requests."""

import pytest

from hourwheel import errors
from node.api.checks import check_group, check_readable_topic, check_topic


@pytest.mark.parametrize("name", ["a", "A.b-c_d|e", "x" * 127])
def test_names_pass_when_they_are_good(name: str) -> None:
    check_topic(name)
    check_group(name)
    check_readable_topic(name)


@pytest.mark.parametrize("name", ["", " ", "a b", "x" * 128, "a\n", "ä", "a/b"])
def test_names_are_refused_when_they_are_bad(name: str) -> None:
    for check in (check_topic, check_readable_topic):
        with pytest.raises(errors.InvalidTopic):
            check(name)
    with pytest.raises(errors.InvalidGroup):
        check_group(name)


def test_internal_topics_can_be_read_but_not_published_to() -> None:
    check_readable_topic("%DLQ%billing")
    with pytest.raises(errors.InvalidTopic):
        check_topic("%DLQ%billing")
