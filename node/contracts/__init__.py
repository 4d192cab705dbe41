"""What the packages of a node ask of each other, and the values that pass between them.

`access` says who may do what; `broker` (EnginePort) and `cluster` (ClusterPort) are what the API
calls; `control` is what a member asks of the control plane. No other rule lives here.
"""
