"""One node: shards, the broker that drives them, the gRPC server. `python -m node` runs it.

Packages, from the top; each imports only what stands below it:

    tools      inspect, repair, backup, demo, local_cluster: programs beside the broker
    process    a node as a process: configuration in, servers started and stopped in order
    console    the node's web pages: a client of the cluster
    api        gRPC towards clients: requests checked, answers put into messages
    cluster    a node among others, or alone: membership, streams to followers, snapshots
    metrics    what Prometheus scrapes
    broker     the engine: time, threads, group commit, background jobs of a shard
    repair     what happens when bytes of this node turn out to be damaged
    consumers  receive, acknowledge, long polls: the consumers' side of the engine
    catalog    topics, groups, subscriptions: proposed, listed, expired
    access     what each call needs; who calls, and whether they may
    snapshot   a snapshot's files on both sides
    replica    the rules of a shard's copy: follower, takeover, mastership. Pure but files
    delivery   leases, receipts, what a receive is given, what was filtered. Pure
    contracts  the ports between these packages, and the values that pass through them
    telemetry  logs, and the plain counters that metrics are read from
    shard      one shard: its log, its views, recovery, checkpoints. No I/O but files
    config     the node's configuration

The way of a publish: api -> broker (publish_service) -> replica.mastership -> shard (log) -> broker
(group_commit) -> shard (apply) -> the answer.
The way of a message to its consumer: broker.engine -> replica.mastership -> shard.apply ->
consumers.polls -> delivery.receiver -> api.
"""

from hourwheel.transport import grpc_logging

grpc_logging.keep_errors_only()  # here, since all of this room comes after it, gRPC included
