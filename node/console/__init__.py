r"""The console: a node's own web pages, on a port of their own.

    browser --> http (connections, bounds) --> gate (who may ask) --> site (files)
                                                                 \-> api --> views, changes
                                                                               |
                                           the public client, on the node's loop: AsyncAdmin

The port has a thread with an event loop of its own (`http.py`), which parses, refuses and packs.
What has to be asked of the cluster is asked on the node's loop, through the public client: so any
node's console shows the whole cluster and hands changes on to its master, and the console can do
nothing that a client could not do. The pages are in `static/`: HTML, CSS and ES modules, without a
build step. What may not live here: anything that reaches into the engine.
"""
