from concurrent.futures import ThreadPoolExecutor

from hourwheel.filter_language.lru_cache import LruCache


def test_what_was_used_least_recently_goes_first() -> None:
    cache = LruCache[str, int](10)
    cache.keep("a", 1, 4)
    cache.keep("b", 2, 4)
    assert cache.find("a") == 1
    cache.keep("c", 3, 4)
    assert cache.find("b") is None
    assert (cache.find("a"), cache.find("c")) == (1, 3)
    assert (cache.used_bytes, len(cache)) == (8, 2)


def test_keep_when_the_key_is_there_already() -> None:
    cache = LruCache[str, int](10)
    cache.keep("a", 1, 4)
    cache.keep("a", 2, 9)
    assert (cache.find("a"), cache.used_bytes, len(cache)) == (2, 9, 1)


def test_keep_when_it_alone_is_too_large() -> None:
    cache = LruCache[str, int](10)
    cache.keep("a", 1, 4)
    cache.keep("b", 2, 11)
    assert cache.find("b") is None
    assert cache.find("a") == 1, "nothing had to go for it"
    cache.keep("a", 3, 11)
    assert cache.find("a") is None
    assert cache.used_bytes == 0


def test_keep_when_one_large_value_takes_the_place_of_several() -> None:
    cache = LruCache[int, int](10)
    for number in range(10):
        cache.keep(number, number, 1)
    cache.keep(99, 99, 8)
    assert [cache.find(number) for number in (7, 8, 9, 99)] == [None, 8, 9, 99]
    cache.clear()
    assert (cache.used_bytes, len(cache)) == (0, 0)


def test_several_threads_at_once() -> None:
    cache = LruCache[int, int](1_000)

    def use(seed: int) -> None:
        for step in range(2_000):
            key = (step * seed) % 97
            if (found := cache.find(key)) is not None:
                assert found == key
            cache.keep(key, key, 1 + key)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(use, (3, 5, 7, 11)))
    kept = [key for key in range(97) if cache.find(key) is not None]
    assert cache.used_bytes == sum(1 + key for key in kept) <= 1_000
