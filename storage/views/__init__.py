"""Views of the log besides queues and wheel: catalog, producers, sequence index, tombstones."""
