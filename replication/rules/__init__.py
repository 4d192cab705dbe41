"""The rules of a replicated shard: master, follower, in-sync set, lease, cluster clock. Pure."""
