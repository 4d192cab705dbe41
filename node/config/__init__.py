"""The node's configuration: `model` has every key, and what the keys must hold together.

`checks` reads addresses and says what is wrong with a value; `sources` reads the file and the
environment; `pages` makes docs/CONFIGURATION.md. Rooms below get small dataclasses
(`node.broker.settings`), never this.
"""
