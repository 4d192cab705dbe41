from http.client import HTTPConnection

import pytest

from hourwheel.errors import FailedPrecondition
from hourwheel.workers.health import HandlerHealth, HealthServer, WorkerHealth
from hourwheel.workers.metrics import FAMILIES, Durations
from hourwheel.workers.results import ResultKind


def fetch(port: int, path: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body


def test_a_worker_is_healthy_while_all_its_handlers_receive() -> None:
    durations = Durations()
    durations.add(30.0)
    counts = {ResultKind.DONE: 7}
    one = HandlerHealth("shop.close", "orders", "shop", True, 3, counts, durations, 2)
    other = one._replace(name="shop.send", is_receiving=False)
    health = [WorkerHealth([one], 2, 5)]
    server = HealthServer("127.0.0.1", 0, FAMILIES, lambda: health[0])
    try:
        expected = '{"processes": 2, "receiving": {"shop.close": {"orders": true}}}'
        assert fetch(server.port, "/healthz") == (200, expected)
        _, metrics = fetch(server.port, "/metrics")
        labels = 'group="shop",handler="shop.close"'
        for line in (
            f'hourwheel_worker_messages_total{{{labels},result="done",topic="orders"}} 7.0',
            f'hourwheel_worker_running_messages{{{labels},topic="orders"}} 3.0',
            "hourwheel_worker_process_restarts_total 5.0",
            f'hourwheel_worker_lost_leases_total{{{labels},topic="orders"}} 2.0',
            f'hourwheel_worker_message_duration_seconds_sum{{{labels},topic="orders"}} 0.03',
        ):
            assert line in metrics
        health[0] = WorkerHealth([one, other], 2, 5)
        assert fetch(server.port, "/healthz")[0] == 503
        second = one._replace(topic="returns", is_receiving=False)
        health[0] = WorkerHealth([second, one], 2, 5)
        topics = '"receiving": {"shop.close": {"returns": false, "orders": true}}'
        assert fetch(server.port, "/healthz") == (503, f'{{"processes": 2, {topics}}}')
        health[0] = WorkerHealth([one], 0, 5)
        assert fetch(server.port, "/healthz")[0] == 503
        assert fetch(server.port, "/else")[0] == 404
        with pytest.raises(FailedPrecondition, match="cannot listen"):
            HealthServer("127.0.0.1", server.port, FAMILIES, lambda: health[0])
    finally:
        server.close()
