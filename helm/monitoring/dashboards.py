"""The dashboards: which questions an operator has, and where the answers stand.

overview        is all well? the objective, the master, what waits
delay-wheel     what falls due when, and whether it comes out in time
log             commit log, disk and replication
control-plane   Raft, elections, the in-sync set
calls           clients: calls, errors, latency, memory for requests
node            one process: processor, memory, loop, garbage, files
consumers       groups: lag, leases, retries, dead letters
programs        beside the nodes: HTTP gateways, webhooks, workers
"""

from typing import Final

from helm.monitoring.cluster import CONTROL_PLANE, LOG
from helm.monitoring.overview import OVERVIEW
from helm.monitoring.process import CALLS, NODE
from helm.monitoring.programs import PROGRAMS
from helm.monitoring.wheel import CONSUMERS, DELAY_WHEEL

DASHBOARDS: Final = (OVERVIEW, DELAY_WHEEL, LOG, CONTROL_PLANE, CALLS, NODE, CONSUMERS, PROGRAMS)
"""All of them; the first one is where to begin."""
