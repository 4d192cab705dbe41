"""Who calls, and whether they may: certificates and logins, before a call is looked at.

What a call needs is in `permissions`; what a node knows of who may do what, in `control`. What
callers may do is decided by `node.contracts.access`; it is asked in `node.api`. The node's
certificate is in `server_tls`, who calls is found out by `authentication`: files of certificates,
keys and users are read again when they change. Who did what goes to `audit`, and written to a
file of its own by `audit_file`.
"""
