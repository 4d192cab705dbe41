"""Chaos: a real cluster under a recorded load, faults, and a checker of what was promised."""
