"""The engine of a shard: time, threads, group commit, publishing, background work.

`engine` drives one shard in turns on the event loop; `master_service` is what it answers and does
in one epoch; `publish_service` and `group_commit` are the way of a publish into the log;
`job_runner` runs what `node.shard.job_planner` plans; `settings` makes the
small configurations of the rooms below.
"""
