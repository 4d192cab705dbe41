"""Receive, acknowledge, long polls: the shell of `node.delivery`, on the loop.

`receive_service` -> `polls` -> `waiters` for what waits; `ack_service` for what consumers say of
messages; `housekeeping` for what the master resolves by itself: leases that ended, filtered ranges.
"""
