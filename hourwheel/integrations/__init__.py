"""Hourwheel as the broker of other libraries.

    import hourwheel.integrations.kombu        # Celery(broker="hourwheel://127.0.0.1:7400")
    from hourwheel.integrations.dramatiq import HourwheelBroker

A task is published with its due time, so that a task for later waits in the wheel and not in a
worker's memory. What each of them can and cannot do: docs/guides/from-celery.md
and docs/guides/from-dramatiq.md.
"""
