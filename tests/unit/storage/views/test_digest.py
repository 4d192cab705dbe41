from hashlib import sha256

import xxhash

from storage.views.digest import feed_numbers, feed_text


def test_feed_numbers_when_signed_and_unsigned() -> None:
    hasher = sha256()
    feed_numbers(hasher, -1, 2**64 - 2, 3)
    assert (
        hasher.digest() == sha256(b"\xff" * 8 + b"\xfe" + b"\xff" * 7 + b"\3" + bytes(7)).digest()
    )


def test_feed_text_when_texts_are_split_elsewhere() -> None:
    one, two = xxhash.xxh3_128(), xxhash.xxh3_128()
    for text in ("ab", "c"):
        feed_text(one, text)
    for text in ("a", "bc"):
        feed_text(two, text)
    assert one.digest() != two.digest()
