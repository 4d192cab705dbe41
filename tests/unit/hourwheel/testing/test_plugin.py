"""The fixtures, as pytest finds them in somebody else's project."""

import pytest


def test_a_test_of_a_user_gets_a_broker_and_sees_what_its_handler_raised(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(
        shop="""
        from hourwheel import App

        app = App(group="shop")
        closed = []

        @app.handler("orders")
        def close_unpaid(order: dict) -> None:
            closed.append(order["id"])
        """,
        test_shop="""
        import os

        import shop

        def test_closes(hourwheel_broker, hourwheel_clock):
            assert os.environ["HOURWHEEL_SERVER"] == hourwheel_broker.server
            hourwheel_broker.run(shop.app)
            shop.app.publish("orders", {"id": 17}, in_="30m", key="order-17")
            hourwheel_clock.advance("29m")
            assert shop.closed == []
            hourwheel_clock.advance("1m")
            assert shop.closed == [17]

        def test_begins_anew(hourwheel_broker):
            hourwheel_broker.run(shop.app)
            hourwheel_broker.settle()
            assert hourwheel_broker.handled == []
            shop.app.publish("orders", {})
            hourwheel_broker.settle()
        """,
    )
    result = pytester.runpytest_inprocess()  # found by its entry point
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*closed.append(order[*", "E *KeyError: 'id'"])
