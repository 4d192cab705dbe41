"""Webhooks: messages of a group, delivered by POST.

    signature.py    what says that a POST is ours (Standard Webhooks). Pure
    addresses.py    which addresses may be connected to. Pure
    answers.py      what an answer means for the message. Pure
    results.py      what came of a POST, in a word. Pure
    settings.py     the configuration: subscriptions
    names.py        addresses of names, looked up in threads of their own
    connections.py  connections to a target: to which address, and kept for how long
    post.py         one POST, bounded in time and bytes
    prepared.py     a subscription with what its files say
    metrics.py      what Prometheus scrapes: one table, and counts
    pusher.py       receives for a subscription, posts, acknowledges
    pushers.py      of all subscriptions, which may change meanwhile
    command.py      what `hourwheel push` does

A message goes through them in this order: `pusher` leases it, `signature` signs it, `post` takes a
connection of `connections`, to an address of `names` that `addresses` allows, and sends it,
`answers` reads what comes back, and `pusher` acknowledges it or gives it back. Retries, order,
rates and dead letters are the group's. Nothing here knows more of a broker than the public client
does.
"""
