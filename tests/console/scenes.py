"""What the tests of the console in a browser share: pages, pictures, how long to wait."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Page

SCREENSHOTS: Final = Path(__file__).resolve().parents[2] / "build" / "screenshots"
HOUR_MS: Final = 3_600_000
WAIT_MS: Final = 60_000
"""A page that does not get there hangs; nothing depends on how long anything takes."""
Opened = Callable[..., Coroutine[Any, Any, Page]]
"""Opens a page: url, is_dark, width."""


async def keep(page: Page, name: str) -> None:
    """Keep a picture of what the page looks like now."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
