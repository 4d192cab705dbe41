"""Tests of programs that use Hourwheel: a broker in the process, whose clock the test moves.

    def test_unpaid_orders_are_closed(hourwheel_broker, hourwheel_clock):
        hourwheel_broker.run(shop.app)
        shop.app.publish("orders", {"id": 17}, in_="30m", key="order-17")
        hourwheel_clock.advance("30m")
        assert shop.closed == [17]

    plugin.py    the fixtures, found by pytest
    broker.py    the broker, and the handlers that run at it
    clock.py     its clock

The broker is a real node (node/process/manual_clock_node.py) that listens on the loopback
interface, so everything of the client works with it. `pip install 'hourwheel[testing]'`.
"""

from hourwheel.testing.broker import Broker, Handled
from hourwheel.testing.clock import Clock

__all__ = ["Broker", "Clock", "Handled"]
