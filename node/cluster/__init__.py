"""A node as one of several, or alone: control process, membership, streams, transfers.

`member` performs what `node.replica` asks for; `replication_stream` has the two ends of
replication, `snapshot_sender` and `snapshot_receiver` are those of a snapshot; `runtime` puts it
together beside a node, and `standalone` does so for a cluster of one.
"""
