"""A node as a process: `app` puts the parts together, `lifecycle` has signals and exit codes.

`subprocess_node` and `embedded` start a real node from tests, benchmarks and the demo.
"""
