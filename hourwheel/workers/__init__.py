"""Workers: functions that handle messages, and the processes that run them.

    app.py          what a program writes: `App`, `@app.handler`, `app.publish`
    handler.py      one function with what it is for; its annotations say how bodies are read
    payloads.py     Python values as bodies, and back
    results.py      what became of a message; the exceptions by which a handler says so
    execution.py    runs a handler: as a task or in a thread, within its time limit
    recurring.py    recurrences that a program brings with it
    worker.py       all services of a program
    service.py      of one topic: receives, has handlers run, holds the leases meanwhile
    pattern.py      services of all topics that fit a pattern
    outcome.py      acknowledges, gives back, rejects
    lease_keeper.py makes leases longer while messages are in work
    leases.py       which leases are to be made longer, and when
    processes.py    children that run handlers, so that none takes others with it
    child.py        such a child
    begun.py        what it had begun when it ended
    frames.py       what a worker and its children say to each other
    metrics.py      what Prometheus scrapes: one table, and counts
    health.py       probes and metrics of a worker, by HTTP

A message goes through them in this order: `service` leases it, `execution` runs its handler (in
this process, or in a child, by way of `processes`, `frames` and `child`), and `service`
acknowledges it or gives it back. Nothing here knows more of a broker than the public client does.
"""
