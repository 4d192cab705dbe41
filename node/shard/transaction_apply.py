"""Decides what PREPARE and TRANSACT records do, as they are applied; commits: see `deduplicate`."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hourwheel import errors
from hourwheel.formats.record_batch import RecordBatch
from hourwheel.formats.transaction_step import Step
from hourwheel.internal.v1.state_pb2 import Prepared
from hourwheel.outcomes import TransactionState
from hourwheel.types import Offset
from node.shard.views import Views
from storage.views.transactions import Transaction

_STATES: Final = {
    int(Step.ROLL_BACK): TransactionState.ROLLED_BACK,
    int(Step.EXPIRE): TransactionState.EXPIRED,
}


class Prepare(NamedTuple):
    """What became of a PREPARE."""

    offset: Offset
    """Of the record that has opened the transaction: this one's, or an earlier one's."""
    is_duplicate: bool


def apply_prepare(views: Views, batch: RecordBatch) -> Prepare:
    """Open a transaction, unless one of this token is known."""
    header, rows = batch.header, batch.rows
    token = int(rows[0]["token_high"]).to_bytes(8, "big")
    token += int(rows[0]["token_low"]).to_bytes(8, "big")
    known = views.transactions.find_token(token)
    if known is not None:
        return Prepare(known.offset, is_duplicate=True)
    prepared = Prepared.FromString(bytes(batch.blobs))
    views.transactions.begin(
        Transaction(
            offset=header.offset,
            epoch=header.epoch,
            token=token,
            producer_group=prepared.producer_group,
            topic_ids=tuple(rows["topic_id"].tolist()),
            message_count=int(rows["message_count"].sum(dtype=np.uint64)),
            size_bytes=header.total_bytes,
            prepared_ms=header.store_ms,
            check_interval_ms=prepared.check_interval_ms,
            checks_max=prepared.checks_max,
            age_max_ms=prepared.age_max_ms,
        )
    )
    return Prepare(header.offset, is_duplicate=False)


def apply_steps(views: Views, batch: RecordBatch) -> NDArray[np.bool_]:
    """bool[n]: which rows of a TRANSACT have changed something."""
    transactions, store_ms = views.transactions, batch.header.store_ms
    done = np.zeros(len(batch.rows), np.bool_)
    for ordinal, (prepare_offset, step, _) in enumerate(batch.rows.tolist()):
        offset = Offset(prepare_offset)
        if not transactions.is_open(offset):
            continue
        done[ordinal] = True
        if step == Step.CHECK:
            transactions.note_check(offset, store_ms)
        elif step in _STATES:
            transactions.decide(offset, _STATES[step], store_ms)
        else:
            raise errors.IncompatibleFormat(
                f"step {step} of a transaction is not known to this version",
                offset=batch.header.offset,
            )
    return done
