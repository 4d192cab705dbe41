"""The rules of a cluster: who is master, who is in sync, and the control plane that decides."""
