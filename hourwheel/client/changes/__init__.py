"""Calls that change messages which are not yet released: taking them back, and moving them."""
