"""A node as one of several: control process, membership, streams, mastership on request.

`member` performs what `node.replica` asks for; `follower_stream` and `replication_server` are the
two ends of replication, `snapshot_sender` and `snapshot_receiver` those of a snapshot; `runtime`
puts it together beside a node.
"""
