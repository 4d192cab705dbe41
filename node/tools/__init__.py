"""Programs beside the broker: `hourwheel inspect`, the demo, a cluster on this machine."""
