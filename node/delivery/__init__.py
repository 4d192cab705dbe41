"""What consumers are given and hold: leases, receipts, filtered ranges, damage. Pure.

`receiver` chooses what a receive gets, `leases` keeps which consumer holds what until when, and
`resolve_rows` turns answers of consumers into RESOLVE rows. Waiting is `node.consumers`.
"""
