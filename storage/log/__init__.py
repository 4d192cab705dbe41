"""The commit log of one shard: segments, group writes, indexes, recovery, scrubbing.

An append goes commit_log -> tail -> segment; `recovery` reads what is there at the start.
"""
