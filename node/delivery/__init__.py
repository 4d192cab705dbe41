"""What consumers are given and hold: leases, receipts, filtered ranges, damage. Pure.

`receiver` chooses what a receive gets, `leases` who holds what until when, `receipts` and `retries`
turn answers of consumers into RESOLVE rows. Waiting is `node.consumers`.
"""
