"""Asks, before a node becomes a member, whether its control process is where it should be."""

import asyncio
from pathlib import Path
from typing import Final

from hourwheel.types import NodeId
from node.cluster.peer_trust import Trusted
from node.config.cluster import ClusterSection
from replication.raft.handshake import Identity
from replication.raft.probe import prove_peer
from replication.raft.security import Security, with_certificates

_WAIT_S: Final = 2.0


class ControlProbe:
    """See the top of this file. Of one node, in its broker process."""

    def __init__(
        self, config: ClusterSection, trust: Trusted, cluster_id: bytes, me: NodeId
    ) -> None:
        """Asks nothing yet.

        Args:
            config: names the files of certificates.
            trust: has the secret, where there are none.
            cluster_id: of this cluster.
            me: this node, which the other one knows by its configuration.
        """
        self._config, self._trust = config, trust
        self._cluster_id, self._me = cluster_id, me

    async def prove(self, node: NodeId, address: str, generation: int) -> None:
        """See `prove_peer`; `generation` is the one in force.

        Raises:
            Unavailable, PeerRefused: see there.
            ConfigError: this node's certificates cannot be read.
        """
        identity = Identity(self._cluster_id, self._me, generation)
        security = await asyncio.to_thread(self._security)
        await prove_peer(identity, security, node, address, wait_s=_WAIT_S)

    def _security(self) -> Security:
        trust, config = self._trust.now, self._config
        if not trust.is_tls:
            return Security(secret=trust.secret.encode())
        return with_certificates(
            Path(config.tls_certificate_file),
            Path(config.tls_key_file),
            Path(config.tls_authority_file),
            self._me,
        )
