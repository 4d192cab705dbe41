"""The control plane's state machine: commands, what they do, who should be master. Pure."""
