"""Recurring messages: made, changed and looked at by the administrator."""
