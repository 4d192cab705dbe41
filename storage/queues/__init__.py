"""Consume queues: what was released, entry by entry, in files; and what each group has resolved."""
