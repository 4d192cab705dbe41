"""Producer, consumer and administrator: asyncio first, `blocking` around it.

A publish goes producer -> sender -> batch_builder -> inflight_batches -> transport. A message comes
consumer -> poll -> prefetch_buffer; acknowledgements go through `ack_batcher`. The public names are
those of `hourwheel`.
"""
