"""A FastAPI application that schedules, and handles what falls due in its own process.

    uvicorn fastapi_shop:api

For handlers that take long or crash, leave the lifespan out and run `hourwheel worker
fastapi_shop:app` beside it: the handlers are the same.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from hourwheel import App, CancelOutcome

app = App(group="shop")
TOPIC = "orders.unpaid"
CLOSED: list[int] = []


class Order(BaseModel):
    """What comes in the request, and what the handler gets."""

    id: int
    total: float


@app.handler(TOPIC)
async def close_unpaid(order: Order) -> None:
    """Half an hour is over."""
    CLOSED.append(order.id)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Handlers run while the application does; what is in work is ended before it ends."""
    stopping = asyncio.Event()
    serving = asyncio.create_task(app.serve(stopping))
    try:
        yield
    finally:
        stopping.set()
        await serving
        await asyncio.to_thread(app.close)


api = FastAPI(lifespan=lifespan)


@api.post("/orders", status_code=201)
async def place(order: Order) -> dict[str, str]:
    """Durable before the answer."""
    message_id = await app.publish_async(TOPIC, order, in_="30m", key=str(order.id))
    return {"message_id": str(message_id)}


@api.post("/orders/{number}/payment")
def pay(number: int) -> dict[str, str]:
    """A function, and no coroutine: FastAPI runs it in a thread, where it may wait."""
    outcome = app.cancel(TOPIC, str(number))
    if outcome is not CancelOutcome.CANCELLED:
        raise HTTPException(409, f"too late: {outcome.name}")
    return {"state": "paid"}
