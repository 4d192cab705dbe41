"""One shard: its log and the views of it. The core; no I/O but files, no clock, no threads.

Batches go in through `shard` and become durable; `apply` folds committed ones into `views`;
`checkpoint` and `recovery` keep and read the views; `dispatcher` decides the next DISPATCH;
`job_planner` says what runs in the background.
"""
