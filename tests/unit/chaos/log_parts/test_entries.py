from chaos.log_parts.entries import Entry, place_of

FIRST = Entry(due_ms=5, sequence=7, attempt=1, topic_queue=256, store_ms=9)


def test_a_retry_waits_beside_the_message_of_others() -> None:
    retry = FIRST._replace(attempt=2, topic_queue=512)
    assert (place_of(FIRST), place_of(retry)) == ((7, 0), (7, 512))
    assert FIRST.release_ms == 9
