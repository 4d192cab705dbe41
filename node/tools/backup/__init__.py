"""`hourwheel backup` and `hourwheel restore`: a node's data in a folder, and out of it again."""
