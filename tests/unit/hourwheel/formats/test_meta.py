import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel import errors, limits
from hourwheel.formats.meta import NO_META, MessageMeta, decode, encode, encode_each, from_wire
from hourwheel.formats.tag_gene import key_hash, sparse_gene
from hourwheel.v1 import meta_pb2

PRINTABLE = st.text(
    st.characters(codec="utf-8", exclude_characters=[*map(chr, range(32)), "\x7f"]),
    min_size=1,
    max_size=30,
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=60)
METAS = st.builds(
    MessageMeta,
    tags=st.lists(PRINTABLE, max_size=5).map(tuple),
    keys=st.lists(TEXT.filter(bool), max_size=5).map(tuple),
    properties=st.dictionaries(PRINTABLE, st.one_of(TEXT, st.just("v" * 300)), max_size=5).map(
        lambda pairs: tuple(pairs.items())
    ),
    client_message_id=TEXT,
    content_type=TEXT,
)


def to_protobuf(meta: MessageMeta) -> meta_pb2.MessageMeta:
    return meta_pb2.MessageMeta(
        tags=meta.tags,
        keys=meta.keys,
        properties=[meta_pb2.Property(name=name, value=value) for name, value in meta.properties],
        client_message_id=meta.client_message_id,
        content_type=meta.content_type,
    )


@given(METAS)
def test_encode_when_compared_with_protobuf(meta: MessageMeta) -> None:
    encoded = encode(meta)
    assert encoded.raw == to_protobuf(meta).SerializeToString()
    assert encoded.tag_gene == sparse_gene(meta.tags)
    assert encoded.key_hash == (key_hash(meta.keys[0]) if meta.keys else 0)
    assert (encoded.tags, encoded.properties) == (meta.tags, meta.properties)
    assert decode(encoded.raw) == meta
    assert from_wire(to_protobuf(meta)) == encoded


def test_encode_when_there_is_nothing() -> None:
    assert encode(NO_META) == (b"", 0, 0, (), ())
    assert decode(b"") is NO_META


def test_encode_when_equal_metas() -> None:
    first = encode(MessageMeta(tags=("a", "b"), properties=(("x", "1"),)))
    assert encode(MessageMeta(tags=("a", "b"), properties=(("x", "1"),))) is first


def test_encode_when_exactly_at_the_limits() -> None:
    encode(MessageMeta(tags=tuple(str(n) for n in range(limits.MESSAGE_TAG_COUNT_MAX))))
    encode(MessageMeta(tags=("é" * 63 + "x",)))
    encode(MessageMeta(keys=("k" * 255,) * limits.MESSAGE_KEY_COUNT_MAX))
    count = limits.MESSAGE_PROPERTY_COUNT_MAX
    encode(MessageMeta(properties=tuple((str(n), "") for n in range(count))))
    encode(MessageMeta(properties=(("n" * 127, "v" * limits.PROPERTY_VALUE_BYTES_MAX),)))


@pytest.mark.parametrize(
    "meta",
    [
        MessageMeta(tags=tuple(str(n) for n in range(limits.MESSAGE_TAG_COUNT_MAX + 1))),
        MessageMeta(tags=("é" * 64,)),
        MessageMeta(keys=("k",) * (limits.MESSAGE_KEY_COUNT_MAX + 1)),
        MessageMeta(keys=("k" * 256,)),
        MessageMeta(properties=tuple((str(n), "") for n in range(129))),
        MessageMeta(properties=(("n" * 128, ""),)),
        MessageMeta(properties=(("n", "v" * (limits.PROPERTY_VALUE_BYTES_MAX + 1)),)),
        MessageMeta(properties=tuple((str(n), "v" * 16_000) for n in range(3))),
        MessageMeta(client_message_id="c" * 256),
        MessageMeta(content_type="c" * 256),
    ],
)
def test_encode_when_too_large(meta: MessageMeta) -> None:
    with pytest.raises(errors.MessageTooLarge) as refused:
        encode(meta)
    assert refused.value.params.keys() in ({"bytes", "bytes_max"}, {"count", "count_max"})
    with pytest.raises(errors.MessageTooLarge):
        from_wire(to_protobuf(meta))


@pytest.mark.parametrize(
    "meta",
    [
        MessageMeta(tags=("",)),
        MessageMeta(tags=("a\nb",)),
        MessageMeta(tags=("a\x7f",)),
        MessageMeta(tags=("\ud800",)),
        MessageMeta(keys=("",)),
        MessageMeta(properties=(("", "v"),)),
        MessageMeta(properties=(("a\0", "v"),)),
        MessageMeta(properties=(("a", "1"), ("b", "2"), ("a", "3"))),
        MessageMeta(tags=(7,)),  # type: ignore[arg-type]
        MessageMeta(keys=(b"k",)),  # type: ignore[arg-type]
    ],
)
def test_encode_when_illegal(meta: MessageMeta) -> None:
    with pytest.raises(errors.InvalidArgument):
        encode(meta)


@pytest.mark.parametrize(
    "raw", [b"\x0a", b"\xff\xff", b"\x0a\x05ab", b"\x0a\x01\xff", b"\x0a" * 301]
)
def test_decode_when_garbage(raw: bytes) -> None:
    with pytest.raises(errors.InvalidArgument):
        decode(raw)


def test_decode_when_too_large() -> None:
    with pytest.raises(errors.MessageTooLarge):
        decode(b"\x0a\x01a" * 11_000)


def test_decode_when_a_later_version_added_a_field() -> None:
    assert decode(b"\x0a\x01a\x92\x03\x03new") == MessageMeta(tags=("a",))


SHORT_KEYS = st.builds(MessageMeta, keys=st.tuples(st.text(min_size=1, max_size=140)))


@given(st.one_of(st.lists(SHORT_KEYS, max_size=5), st.lists(METAS, max_size=5)))
def test_encode_each_when_compared_with_one_by_one(every: list[MessageMeta]) -> None:
    assert encode_each(every) == [encode(meta) for meta in every]


@pytest.mark.parametrize(
    ("key", "refusal"),
    [
        ("", errors.InvalidArgument),
        ("\ud800", errors.InvalidArgument),
        (7, errors.InvalidArgument),
        ("k" * (limits.KEY_BYTES_MAX + 1), errors.MessageTooLarge),
    ],
)
def test_encode_each_when_a_key_is_none(key: str, refusal: type[Exception]) -> None:
    with pytest.raises(refusal):
        encode_each([MessageMeta(keys=("order-1",)), MessageMeta(keys=(key,))])


def test_encode_each_when_one_has_more_than_a_key() -> None:
    every = [MessageMeta(keys=("order-1",)), MessageMeta(keys=("order-2",), priority=3)]
    assert encode_each(every) == [encode(meta) for meta in every]
