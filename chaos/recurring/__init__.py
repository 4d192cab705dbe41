"""Recurring messages: what the log means for them, told naively."""
