from enum import IntEnum

import pytest
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from hourwheel.outcomes import (
    CancelOutcome,
    EventKind,
    IfPending,
    MessageState,
    Missed,
    ReceiptOutcome,
    RescheduleOutcome,
    TransactionState,
)
from hourwheel.v1 import (
    admin_pb2,
    broker_pb2,
    consumer_pb2,
    lookup_pb2,
    recurrence_pb2,
    transaction_pb2,
)


@pytest.mark.parametrize(
    ("ours", "wire", "prefix"),
    [
        (CancelOutcome, broker_pb2.CancelOutcome, "CANCEL_OUTCOME_"),
        (ReceiptOutcome, consumer_pb2.ReceiptOutcome, "RECEIPT_OUTCOME_"),
        (RescheduleOutcome, broker_pb2.RescheduleOutcome, "RESCHEDULE_OUTCOME_"),
        (MessageState, admin_pb2.MessageState, "MESSAGE_STATE_"),
        (EventKind, lookup_pb2.EventKind, "EVENT_KIND_"),
        (Missed, recurrence_pb2.MissedPolicy, "MISSED_POLICY_"),
        (IfPending, broker_pb2.IfPending, "IF_PENDING_"),
        (TransactionState, transaction_pb2.TransactionState, "TRANSACTION_STATE_"),
    ],
)
def test_outcomes_when_compared_with_the_api(
    ours: type[IntEnum], wire: "EnumTypeWrapper", prefix: str
) -> None:
    expected = {prefix + one.name: int(one) for one in ours}
    assert dict(wire.items()) == {prefix + "UNSPECIFIED": 0} | expected
