"""Book a trip: flight, hotel and car, or nothing. What is booked is undone when a later step fails.

    hourwheel worker saga:app

Each step is a message, so a crash costs one attempt of one step. Steps and their undoing may run
twice; the trip's number makes that harmless. A trip that is not done in time is undone, too.
"""

from hourwheel import App, Reject

app = App(group="trips")
STEPS = ("flight", "hotel", "car")
DONE = "booked"
BEGUN: dict[str, list[str]] = {}
"""Trip -> steps that are booked, or perhaps. Stands for a table."""
ENDED: dict[str, str] = {}
"""Trip -> how it ended. Who writes first decides: stands for a table with the trip as its key."""


class SoldOut(Exception):
    """There is nothing left to book: to try again is of no use."""


def book(trip: str, step: str) -> None:
    """Asks an airline, a hotel."""


def undo(trip: str, step: str) -> None:
    """Tells them that nobody comes."""


def start(trip: str) -> None:
    """Somebody wants to travel."""
    BEGUN[trip] = []
    app.publish("trips.deadline", trip, in_="15m", key=trip)
    app.publish("trips.book", {"trip": trip, "step": STEPS[0]})


@app.handler("trips.book")
def book_step(message: dict) -> None:
    """Book one step and go on with the next one. Other errors than `SoldOut` are tried again."""
    trip, step = message["trip"], message["step"]
    if trip not in ENDED:
        BEGUN[trip].append(step)  # first: a crash while it books leaves nothing booked behind
        try:
            book(trip, step)
        except SoldOut:
            ENDED.setdefault(trip, f"no {step}")
        else:
            if step == STEPS[-1]:
                ENDED.setdefault(trip, DONE)
    if trip not in ENDED:
        following = STEPS[STEPS.index(step) + 1]
        app.publish("trips.book", {"trip": trip, "step": following})
    elif ENDED[trip] == DONE:
        app.cancel("trips.deadline", trip)
    else:  # by this step, or since it began to book
        undo_all(trip)
        app.cancel("trips.deadline", trip)
        raise Reject(ENDED[trip])


@app.handler("trips.deadline")
def give_up(trip: str) -> None:
    """A quarter of an hour is over."""
    if ENDED.setdefault(trip, "too late") != DONE:
        undo_all(trip)


def undo_all(trip: str) -> None:
    """Last things first, by a message each. Who ends in between does it again, from the start."""
    for step in reversed(dict.fromkeys(BEGUN[trip])):
        app.publish("trips.undo", {"trip": trip, "step": step})


@app.handler("trips.undo")
def undo_step(message: dict) -> None:
    """Is tried until it is done: give the group attempts accordingly."""
    undo(message["trip"], message["step"])
