"""Programs beside the broker: inspect and repair, the demo, a cluster on this machine."""
