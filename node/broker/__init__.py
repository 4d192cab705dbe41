"""The engine of a shard: time, threads, group commit, publishing, background work.

`engine` drives one shard in turns on the event loop; `publish_service` and `writer` are the way of
a publish into the log; `job_runner` runs what `node.shard.job_planner` plans; `settings` makes the
small configurations of the rooms below.
"""
