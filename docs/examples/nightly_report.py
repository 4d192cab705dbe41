"""Make a report each night, and mail it on working days, by the clock of the people who read it.

    hourwheel worker nightly_report:app

The schedule is beside the function. It is put when a worker starts, and changed when one starts
that has another; `hourwheel recurring list` shows it, and `hourwheel recurring pause` stops it.
"""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hourwheel import App, MessageContext, Missed

app = App(group="reports")
ZONE = "Europe/Berlin"
REPORTS: dict[str, int] = {}
"""Day -> sales. Stands for files."""
MAILED: list[str] = []


def sales_of(day: str) -> int:
    """Asks the database."""
    return len(day)


# After an outage of three days three reports are made, one after the other.
@app.recurring("0 3 * * *", zone=ZONE, missed=Missed.ALL)
def report(context: MessageContext) -> None:
    """Of the day before the one for which this is due, whenever it runs: so twice is as once."""
    due = datetime.fromtimestamp(context.due_ms / 1_000, UTC).astimezone(ZoneInfo(ZONE))
    day = str(due.date() - timedelta(days=1))
    REPORTS[day] = sales_of(day)


# Nobody wants three mails: of those that were missed the last one.
@app.recurring("0 9 * * MON-FRI", zone=ZONE, missed=Missed.LAST)
def mail() -> None:
    """The latest report."""
    MAILED.append(max(REPORTS))
