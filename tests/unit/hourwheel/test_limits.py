import numpy as np

from hourwheel import limits
from hourwheel.formats.record_batch import HEADER_BYTES, RecordBatch, build_publish
from storage.views.unit import UNIT


def test_lengths_when_at_their_limits_fit_the_columns_that_keep_them() -> None:
    assert np.iinfo(UNIT["meta_len"]).max >= limits.MESSAGE_META_BYTES_MAX
    assert np.iinfo(UNIT["body_len"]).max >= limits.MESSAGE_BODY_BYTES_MAX
    assert np.iinfo(np.uint32).max >= limits.BATCH_BYTES_MAX


def test_largest_message_when_put_into_a_batch_fits() -> None:
    batch = RecordBatch(
        build_publish(
            [0],
            [bytes(limits.MESSAGE_BODY_BYTES_MAX)],
            metas=[bytes(limits.MESSAGE_META_BYTES_MAX)],
        )
    )
    assert batch.header.total_bytes <= limits.BATCH_BYTES_MAX
    assert batch.header.total_bytes <= limits.GRPC_MESSAGE_BYTES_MAX


def test_most_messages_when_put_into_a_batch_leave_room_for_bodies() -> None:
    count = limits.BATCH_MESSAGE_COUNT_MAX
    empty = RecordBatch(build_publish([0] * count, [b""] * count)).header.total_bytes
    assert empty - HEADER_BYTES < limits.BATCH_BYTES_MAX // 8


def test_largest_message_when_received_fits() -> None:
    largest = limits.MESSAGE_BODY_BYTES_MAX + limits.MESSAGE_META_BYTES_MAX
    assert largest <= limits.RECEIVE_BYTES_MAX < limits.GRPC_MESSAGE_BYTES_MAX


def test_metas_parts_when_one_of_each_is_at_its_limit_fit_together() -> None:
    parts = (
        limits.NAME_BYTES_MAX + limits.KEY_BYTES_MAX,
        limits.PROPERTY_NAME_BYTES_MAX + limits.PROPERTY_VALUE_BYTES_MAX,
    )
    assert sum(parts) < limits.MESSAGE_META_BYTES_MAX


def test_limits_when_listed_are_positive_whole_numbers() -> None:
    values = {name: value for name, value in vars(limits).items() if name.isupper()}
    assert all(isinstance(value, int) and value > 0 for value in values.values())
    assert values["INVISIBLE_MS_MIN"] < values["INVISIBLE_MS_MAX"]
