"""Filters as a language: tag expressions and SQL -> one `tree`, weighed, evaluated, on the wire.

How a node evaluates them for many messages at once is the room `filters`.
"""
