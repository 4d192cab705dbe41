import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import limits
from hourwheel.errors import InvalidTopic
from hourwheel.integrations.names import topic_of


@pytest.mark.parametrize(
    ("queue", "virtual_host", "topic"),
    [
        ("celery", "", "celery"),
        ("celery", "/", "celery"),
        ("celery@host.celery.pidbox", "", "celery|40host.celery.pidbox"),
        ("a|b", "shop", "shop||a|7cb"),
        ("größe", "", "gr|c3|b6|c3|9fe"),
    ],
)
def test_queue_has_a_topic_of_its_name(queue: str, virtual_host: str, topic: str) -> None:
    assert topic_of(queue, virtual_host) == topic


@pytest.mark.parametrize("queue", ["", "q" * (limits.NAME_BYTES_MAX + 1), "@" * 60])
def test_queue_is_refused_when_its_topic_would_be_no_topic(queue: str) -> None:
    with pytest.raises(InvalidTopic):
        topic_of(queue)


_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
_hosts = _names.map(lambda name: name.strip("/"))


@given(st.tuples(_names, _hosts), st.tuples(_names, _hosts))
def test_different_queues_have_different_topics(a: tuple[str, str], b: tuple[str, str]) -> None:
    assert (topic_of(*a) == topic_of(*b)) == (a == b)
