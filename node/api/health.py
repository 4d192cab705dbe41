"""The standard health service (grpc.health.v1): SERVING while calls are taken, else NOT_SERVING.

A node whose disk is full is SERVING: it still delivers, and refuses publishes with a typed error.
"""

from collections.abc import Sequence as Seq

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

SERVICE = health.SERVICE_NAME


class Health:
    """The state of our services as the health service tells it."""

    def __init__(self, services: Seq[str]) -> None:
        """Full names of the services; "" (all together) is added. Nothing serves yet."""
        self._services = ("", *services)
        self._servicer = health.aio.HealthServicer()

    async def add_to(self, server: grpc.aio.Server) -> None:
        """Answer health calls on `server`."""
        await self._set(health_pb2.HealthCheckResponse.NOT_SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)

    async def serve(self) -> None:
        """From now on everything is SERVING."""
        await self._set(health_pb2.HealthCheckResponse.SERVING)

    async def drain(self) -> None:
        """From now on, for ever, everything is NOT_SERVING. Watchers are told."""
        await self._servicer.enter_graceful_shutdown()

    async def _set(self, status: int) -> None:
        for service in self._services:
            await self._servicer.set(service, status)
