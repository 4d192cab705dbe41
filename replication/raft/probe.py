"""Whether the port of a control process is one: the peers' own handshake, as far as its answer.

A member asks before it proposes that a new node become one. What listens there has to prove that
it is that node of this cluster, as it would to each peer; then the member hangs up, and to the node
it was a stranger that said nothing more.
"""

import asyncio
import os
from contextlib import suppress

from hourwheel import errors
from hourwheel.types import NodeId
from replication.raft.frames import pack_frame, read_frame
from replication.raft.handshake import HELLO_BYTES_MAX, NONCE_BYTES, Handshake, Identity
from replication.raft.security import Security, split_address


async def prove_peer(
    identity: Identity, security: Security, peer_id: NodeId, address: str, *, wait_s: float
) -> None:
    """Have the node at `address` prove that it is `peer_id`.

    Args:
        identity: who asks.
        security: how peers are trusted.
        peer_id: who it should be.
        address: host:port of its control process.
        wait_s: for a connection, and once more for the proof.

    Raises:
        Unavailable: no connection is accepted there, or no answer comes in time.
        PeerRefused: what listens there is another process, or refuses this node.
    """
    host, port = split_address(address)
    try:
        async with asyncio.timeout(wait_s):
            reader, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError) as error:
        raise errors.Unavailable(f"no process listens at {address}", address=address) from error
    try:
        async with asyncio.timeout(wait_s):
            if security.client_tls is not None:
                await writer.start_tls(security.client_tls, server_hostname=host)
            handshake = Handshake(
                identity,
                frozenset({peer_id}),
                os.urandom(NONCE_BYTES),
                secret=security.secret,
                certified=security.certified(writer.get_extra_info("peercert")),
            )
            writer.write(pack_frame(handshake.first(peer_id, is_inquiry=True)))
            handshake.prove(await read_frame(reader, HELLO_BYTES_MAX))
    except TimeoutError as error:  # an OSError, too
        raise errors.Unavailable(f"what listens at {address} is silent", address=address) from error
    except errors.PeerRefused as error:
        raise errors.PeerRefused(f"what listens at {address}: {error.message}") from error
    except (OSError, EOFError, errors.InvalidBatch) as error:
        raise errors.PeerRefused(
            f"what listens at {address} hangs up or speaks another protocol"
        ) from error
    finally:
        with suppress(OSError):
            writer.transport.abort()
