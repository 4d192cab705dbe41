"""A shard's copy on one node: the rules of a master and of a follower. Pure but files.

Messages and times go in, `effects` come out; `node.cluster.member` performs them. `mastership` is
all that a master has in one epoch: made by a takeover, closed when it steps down, never reused.
"""
