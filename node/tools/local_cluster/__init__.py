"""`hourwheel cluster up`: a cluster of processes on this machine, for trying out and for tests."""
