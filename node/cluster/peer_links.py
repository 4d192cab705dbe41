"""Calls to other nodes, as the packages of a node ask for them."""

from typing import Any, Protocol

from hourwheel.internal.v1.replication_pb2 import FetchSnapshotRequest
from hourwheel.types import NodeId
from node.repair.peers import PeerCalls


class PeerLinks(PeerCalls, Protocol):
    """What is needed of node.cluster.data_plane.Dialer."""

    def replicate(self, node: NodeId) -> Any:
        """Begin a Replicate call."""
        ...

    def fetch_snapshot(self, node: NodeId, request: FetchSnapshotRequest) -> Any:
        """Begin a FetchSnapshot call: an asynchronous iterator of FetchSnapshotResponse."""
        ...
