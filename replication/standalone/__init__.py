"""The control state of a node without others: a journal and a snapshot, without Raft."""
