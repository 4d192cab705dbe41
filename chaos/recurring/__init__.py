"""Recurring messages: what the log means for them, by a naive model."""
