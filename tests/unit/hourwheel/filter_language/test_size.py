import gc
import tracemalloc

import pytest

from hourwheel.filter_language import sql, tags
from hourwheel.filter_language.size import tree_bytes

TREES = {
    "tags": "||".join(f"{number}" for number in range(500)),
    "groups": "&&".join(f"(a{number}||b{number})" for number in range(200)),
    "texts": "SQL " + " or ".join(f"a{number} = 'x{number}'" for number in range(200)),
    "numbers": "SQL " + " or ".join(f"a{number} < {number}.5" for number in range(250)),
    "places": "SQL " + " or ".join(f"a contains 'x{number}'" for number in range(200)),
    "list": "SQL a in (" + ",".join(f"'{number}'" for number in range(256)) + ")",
    "tag list": "SQL TAGS in (" + ",".join(f"'{number}'" for number in range(256)) + ")",
    "number list": "SQL a in (" + ",".join(f"{number}.5" for number in range(256)) + ")",
    "properties": "SQL " + " or ".join(f"a{number} < b{number}" for number in range(250)),
    "wide": "SQL " + " or ".join(f"a = '\N{EURO SIGN}{number}'" for number in range(250)),
    "negations": "SQL " + " or ".join(f"not a{number} is null" for number in range(200)),
    "long names": "SQL " + " or ".join(f"{'n' * 100}{number} is null" for number in range(30)),
}


@pytest.mark.parametrize("text", TREES.values(), ids=TREES)
def test_tree_bytes_is_what_a_large_tree_takes(text: str) -> None:
    parse = sql.parse if text.startswith("SQL ") else tags.parse
    text = text.removeprefix("SQL ")
    parse(text)  # the grammar is made once
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tree = parse(text)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.8 * taken <= tree_bytes(tree) <= 3 * taken
