"""The control process beside each broker: its parts, its link to the broker, its life."""
