"""Remind people of appointments a day ahead, but not at night where they live.

hourwheel worker reminders:app
"""

from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from pydantic import AwareDatetime, BaseModel

from hourwheel import App

app = App(group="calendar")
TOPIC = "reminders"
AHEAD = timedelta(days=1)
WAKES, SLEEPS = time(8), time(21)
SENT: list[tuple[str, datetime]] = []
"""Stands for the mails that go out."""


class Appointment(BaseModel):
    """Of somebody, somewhere."""

    id: str
    who: str
    at: AwareDatetime
    zone: str


def remind_at(appointment: Appointment) -> datetime:
    """A day ahead; what would come at night comes in the evening before."""
    local = (appointment.at - AHEAD).astimezone(ZoneInfo(appointment.zone))
    if WAKES <= local.time() < SLEEPS:
        return local
    evening = local if local.time() >= SLEEPS else local - timedelta(days=1)
    return evening.replace(hour=SLEEPS.hour - 1, minute=0, second=0, microsecond=0)


def make(appointment: Appointment) -> None:
    """An appointment is made. Where the time has come already the reminder goes out at once."""
    app.publish(TOPIC, appointment, at=remind_at(appointment), key=appointment.id)


def change(appointment: Appointment) -> None:
    """It is another one now: its reminder has other words, and another time."""
    app.cancel(TOPIC, appointment.id)
    make(appointment)


@app.handler(TOPIC)
def remind(appointment: Appointment) -> None:
    """Send the mail."""
    SENT.append((appointment.who, appointment.at))
