"""The node's configuration: `model` has every key, `checks` what they must hold together.

`sources` reads the file and the environment; `pages` makes docs/CONFIGURATION.md. Rooms below get
small dataclasses (`node.broker.settings`), never this.
"""
