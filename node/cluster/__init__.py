"""A node as one of several, or alone: control process, membership, streams, transfers.

`member` performs what `node.replica` asks for; `follower_stream` and `replication_server` are the
two ends of replication, `snapshot_sender` and `snapshot_receiver` those of a snapshot; `runtime`
puts it together beside a node, and `alone` does so for a cluster of one.
"""
