"""A real Prometheus and Alertmanager, and what they say; rules made quick, so that tests are.

async with RealPrometheus(tmp_path / "prometheus", addresses) as prometheus:
    await prometheus.fires("HourwheelNoMaster")
"""

import asyncio
import json
import re
import signal
import urllib.parse
import urllib.request
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from tests.monitoring.rules import ALERTS_FILE, alerts
from tests.support.addresses import free_address

SCRAPE: Final = "500ms"
WINDOW: Final = "10s"
"""In place of a query's minutes and hours."""
_HANG_S: Final = 120.0
_AGAIN_S: Final = 0.2
_SLOW: Final = re.compile(r"\[(?:\d+[smh]|\$__rate_interval)\]")
"""Not a day: that is for what Prometheus remembers of a node that is down."""


def made_quick(expr: str) -> str:
    """A query with short windows, and everything chosen that a dashboard lets one choose."""
    quick = _SLOW.sub(f"[{WINDOW}]", expr)
    return re.sub(r'"\$\w+"', '".*"', quick)


def quick_rules(text: str) -> str:
    """The rule file, with short windows, and alerts that fire after a second."""
    rules = yaml.safe_load(text)
    for group in rules["groups"]:
        group["interval"] = SCRAPE
        for rule in group["rules"]:
            rule["expr"] = made_quick(rule["expr"])
            if "for" in rule:
                rule["for"] = "1s"
    return yaml.safe_dump(rules)


class RealPrometheus:
    """Both processes, on ports of their own; everything they keep is in one folder."""

    def __init__(self, folder: Path, targets: Sequence[str]) -> None:
        """`targets`: host:port of each node's metrics."""
        self._folder, self._targets = folder, targets
        self._address, self._alerts_address = free_address(), free_address()
        self._undo = AsyncExitStack()
        self._over = asyncio.Event()
        self.process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as undo:
            self._write()
            await self._start(
                undo,
                *("prometheus-alertmanager", f"--config.file={self._folder}/alertmanager.yml"),
                f"--storage.path={self._folder}/alertmanager",
                *(f"--web.listen-address={self._alerts_address}", "--cluster.listen-address="),
            )
            self.process = await self._start(
                undo,
                *("prometheus", f"--config.file={self._folder}/prometheus.yml"),
                f"--storage.tsdb.path={self._folder}/tsdb",
                *(f"--web.listen-address={self._address}", "--log.level=warn"),
            )
            self._undo = undo.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        await self._undo.aclose()

    async def _pause(self) -> None:
        """Between two questions: what is waited for is in another process."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_AGAIN_S):
                await self._over.wait()

    def _write(self) -> None:
        self._folder.mkdir()
        (self._folder / "alerts.yaml").write_text(quick_rules(ALERTS_FILE.read_text()))
        targets = [{"targets": list(self._targets), "labels": {"namespace": "test"}}]
        config = {
            "global": {"scrape_interval": SCRAPE, "evaluation_interval": SCRAPE},
            "rule_files": [f"{self._folder}/alerts.yaml"],
            "alerting": {
                "alertmanagers": [{"static_configs": [{"targets": [self._alerts_address]}]}]
            },
            "scrape_configs": [
                {"job_name": "hourwheel", "static_configs": targets, "scrape_timeout": SCRAPE}
            ],
        }
        (self._folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        receiver = {
            "route": {"receiver": "nobody", "group_wait": "1s", "group_interval": "1s"},
            "receivers": [{"name": "nobody"}],
        }
        (self._folder / "alertmanager.yml").write_text(yaml.safe_dump(receiver))

    async def _start(self, undo: AsyncExitStack, *command: str) -> asyncio.subprocess.Process:
        with (self._folder / f"{command[0]}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)

        async def stop() -> None:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
            await process.wait()

        undo.push_async_callback(stop)
        return process

    # -- what they say ----------------------------------------------------------------------------

    async def ask(self, expr: str) -> list[dict[str, Any]]:
        """The samples of a query, as it stands; raises where it fails."""
        answer = await _get(self._address, "/api/v1/query", query=expr)
        assert answer["status"] == "success", answer
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    async def sees(self, expr: str) -> None:
        """Wait until a query has a sample."""
        await self._until(expr, is_seen=True)

    async def sees_no_more(self, expr: str) -> None:
        """Wait until it has none."""
        await self._until(expr, is_seen=False)

    async def _until(self, expr: str, *, is_seen: bool) -> None:
        found: list[Any] | str = "no answer"
        try:
            async with asyncio.timeout(_HANG_S):
                while True:
                    try:
                        found = await self.ask(expr)
                        if bool(found) == is_seen:
                            return
                    except OSError:
                        found = "no answer"  # it is starting
                    await self._pause()
        except TimeoutError:
            raise AssertionError(f"{expr}: {found}, wanted {is_seen}") from None

    async def fires(self, alert: str, **labels: str) -> None:
        """Wait until an alert was pending, fires, and Alertmanager has it."""
        await self.sees(_alerting(alert, "firing", labels))
        if alert in _WAITING:
            assert await self.ask(f"count_over_time({_alerting(alert, 'pending', labels)}[10m])")
        await self._until_told(alert, is_active=True)

    async def is_over(self, alert: str, **labels: str) -> None:
        """Wait until it fires no more, and Alertmanager knows that, too."""
        await self.sees_no_more(_alerting(alert, "firing", labels))
        await self._until_told(alert, is_active=False)

    async def _until_told(self, alert: str, *, is_active: bool) -> None:
        async with asyncio.timeout(_HANG_S):
            while True:
                told = await _get(self._alerts_address, "/api/v2/alerts", active="true")
                if any(one["labels"]["alertname"] == alert for one in told) == is_active:
                    return
                await self._pause()


_WAITING: Final = {rule["alert"] for rule in alerts() if "for" in rule}
"""Alerts that are pending for a while before they fire."""


def _alerting(alert: str, state: str, labels: dict[str, str]) -> str:
    named = {"alertname": alert, "alertstate": state, **labels}
    return "ALERTS{" + ",".join(f'{name}="{value}"' for name, value in named.items()) + "}"


async def _get(address: str, path: str, **parameters: str) -> Any:
    """The JSON that one of them answers; OSError where it does not."""
    url = f"http://{address}{path}?{urllib.parse.urlencode(parameters)}"

    def get() -> Any:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)

    return await asyncio.to_thread(get)
