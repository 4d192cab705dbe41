"""The commit log of one shard: segments, group writes, indexes, recovery, scrubbing.

An append goes commit_log -> tail -> group_write -> segment; `recovery` reads what is there at
the start.
"""
