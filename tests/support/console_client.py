"""The console as a browser's program asks it: a token, our own Origin, JSON."""

import asyncio
import base64
import http.client
import json
from typing import Any, Self

from node.console.gate import TOKEN_HEADER


class ConsoleClient:
    """One console. Each request has a connection of its own."""

    def __init__(self, address: str, login: tuple[str, str] | None = None) -> None:
        """`login`: a user's name and secret."""
        self.address = address
        self._login = {}
        if login is not None:
            given = base64.b64encode(":".join(login).encode()).decode()
            self._login = {"Authorization": f"Basic {given}"}
        self._token = ""

    async def open(self) -> Self:
        """Get the token."""
        self._token = (await self.get("session"))[1]["token"]
        return self

    async def get(self, path: str, **headers: str) -> tuple[int, dict[str, Any]]:
        """Status and answer."""
        status, body, _ = await self.raw("GET", f"/api/{path}", headers)
        return status, json.loads(body)

    async def post(self, name: str, given: object, **headers: str) -> tuple[int, dict[str, Any]]:
        """Status and answer; `headers` over those of our own page."""
        own = {
            "Origin": f"http://{self.address}",
            "Content-Type": "application/json",
            TOKEN_HEADER: self._token,
        }
        body = json.dumps(given).encode()
        status, told, _ = await self.raw("POST", f"/api/{name}", {**own, **headers}, body)
        return status, json.loads(told)

    async def raw(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of one answer."""
        return await asyncio.to_thread(self._raw, method, path, headers, body)

    def _raw(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            connection.request(method, path, body, {**self._login, **headers})
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())
        finally:
            connection.close()

    async def finish(self, number: int) -> dict[str, Any]:
        """Wait for the end of a count or a cancel."""
        async with asyncio.timeout(60):
            while (found := (await self.get(f"operation?number={number}"))[1])[
                "state"
            ] == "running":
                pass
        return found
