"""The HTTP gateway: JSON calls turned into calls of the public client.

    problems.py     what went wrong, as a status and an `application/problem+json`
    models.py       what callers send and get, as types: they check, and make the schema
    routes.py       the one table of calls: method, path, types, the gRPC calls it stands for
    calls.py        what each of them does
    callers.py      who calls: credentials, and a channel to the nodes for each
    bodies.py       from the bytes of a body to a checked value
    openapi.py      the OpenAPI document of that table
    port.py         connections: bounds, deadlines, and who gives way
    exchange.py     HTTP/1.1 on one connection, by h11
    site.py         from a request to its answer, in the order in which one is looked at
    metrics.py      what Prometheus scrapes: one table, and counts
    settings.py     the configuration
    prepared.py     the configuration with what its files say
    command.py      what `hourwheel http` does

A request goes through them in this order: `port` accepts a connection, `exchange` reads the head,
`site` finds the route and, by `callers`, who calls; then the body is read and checked by `models`,
and `calls` asks the nodes. Whether the caller may is the nodes' decision: the gateway has no rights
and no permissions of its own. Nothing here knows more of a broker than the public client does.
"""
