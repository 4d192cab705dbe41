"""Book a trip: flight, hotel and car, or nothing. What is booked is undone when a later step fails.

    hourwheel worker saga:app

Each step is a message, so a crash costs one attempt of one step. Steps and their undoing may run
twice; the trip's number makes that harmless. A trip that is not done in time is undone, too.
"""

from hourwheel import App, Reject

app = App(group="trips")
STEPS = ("flight", "hotel", "car")
BOOKED: dict[str, list[str]] = {}
"""Trip -> steps that are done. Stands for a table."""
ENDED: dict[str, str] = {}
"""Trip -> how it ended."""


class SoldOut(Exception):
    """There is nothing left to book: to try again is of no use."""


def book(trip: str, step: str) -> None:
    """Asks an airline, a hotel."""


def undo(trip: str, step: str) -> None:
    """Tells them that nobody comes."""


def start(trip: str) -> None:
    """Somebody wants to travel."""
    BOOKED[trip] = []
    app.publish("trips.deadline", trip, in_="15m", key=trip)
    app.publish("trips.book", {"trip": trip, "step": STEPS[0]})


@app.handler("trips.book")
def book_step(message: dict) -> None:
    """Book one step and go on with the next one. Other errors than `SoldOut` are tried again."""
    trip, step = message["trip"], message["step"]
    if trip in ENDED:
        raise Reject("the trip is over")
    try:
        if step not in BOOKED[trip]:
            book(trip, step)
            BOOKED[trip].append(step)
    except SoldOut as error:
        end(trip, f"no {step}")
        raise Reject(f"no {step}") from error
    if step != STEPS[-1]:
        following = STEPS[STEPS.index(step) + 1]
        app.publish("trips.book", {"trip": trip, "step": following})
    else:
        ENDED[trip] = "booked"
        app.cancel("trips.deadline", trip)


@app.handler("trips.deadline")
def give_up(trip: str) -> None:
    """A quarter of an hour is over."""
    if trip not in ENDED:
        end(trip, "too late")


def end(trip: str, why: str) -> None:
    """Undo what is booked, last things first, each by a message of its own."""
    ENDED[trip] = why
    for step in reversed(BOOKED[trip]):
        app.publish("trips.undo", {"trip": trip, "step": step})


@app.handler("trips.undo")
def undo_step(message: dict) -> None:
    """Is tried until it is done: give the group attempts accordingly."""
    undo(message["trip"], message["step"])
