"""Filters: which message matches a subscription, decided for whole blocks of messages at once."""
