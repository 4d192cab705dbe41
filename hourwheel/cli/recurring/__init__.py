"""`hourwheel recurring`."""
