"""Names of members' groups: which there are, and that each has one reading."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors
from hourwheel.formats.member_group import is_member_group, member_group_name, membership_of
from hourwheel.limits import NAME_BYTES_MAX
from storage.views.catalog_names import retry_topic_name, validate_group_name


@given(group=st.text("ab|.-_", min_size=1, max_size=9), member=st.text("ab.-_", min_size=1))
def test_name_has_one_reading(group: str, member: str) -> None:
    try:
        name = member_group_name(group, member)
    except errors.InvalidGroup:
        assert len(group) + len(member) > 115
        return
    assert membership_of(name) == (group, member)
    assert is_member_group(name)
    with pytest.raises(errors.InvalidGroup):
        validate_group_name(name)


@pytest.mark.parametrize(
    "wrong", [("", "a"), ("a", ""), ("a", "b|c"), ("a%", "b"), ("a", "b%"), ("a" * 115, "b")]
)
def test_name_is_refused_when_it_would_have_no_or_two_readings(wrong: tuple[str, str]) -> None:
    with pytest.raises(errors.InvalidGroup):
        member_group_name(*wrong)
    assert len(member_group_name("a" * 114, "b")) == NAME_BYTES_MAX


@pytest.mark.parametrize("wrong", ["a", "%BROADCAST%", "%BROADCAST%a", "%BROADCAST%a|", "%DLQ%a|b"])
def test_other_groups_are_no_members(wrong: str) -> None:
    with pytest.raises(errors.InvalidGroup):
        membership_of(wrong)


def test_retries_of_two_members_never_share_a_topic() -> None:
    names = [member_group_name(*one) for one in (("a|b", "c"), ("a", "b"), ("a", "7Cb"))]
    topics = {retry_topic_name(name, topic) for name in [*names, "a|b"] for topic in ("t", "c|t")}
    assert len(topics) == 8
