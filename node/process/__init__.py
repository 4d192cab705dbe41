"""A node as a process: `app` puts the parts together, `lifecycle` has signals and exit codes.

`subprocess_node` starts a real node as a child process, for the demo, local
clusters and tests.
"""
