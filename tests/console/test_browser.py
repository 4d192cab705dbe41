"""The console in a real browser, with three nodes behind it."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Page, expect

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message
from node.tools.local_cluster.nodes import LocalCluster
from tests.console.scenes import HOUR_MS, WAIT_MS, Opened, keep

HOSTILE: Final = "<img src=x onerror=\"globalThis.hacked='yes'\"></pre><script>hacked=1</script>"
PAGES: Final = (
    *("cluster", "wheel/hour", "wheel/year", "topics", "groups", "messages?topic=orders"),
    "access",
)
CONTRAST_MIN: Final = 4.5
READY: Final = {
    "cluster": "Make master",
    "wheel/hour": "Show as a table",
    "wheel/year": "Show as a table",
    "topics": "reminders",
    "groups": "billing",
    "messages?topic=orders": "Cancel all of them",
    "access": "Revoke",
}
"""Words that are there when the page is."""

UNNAMED: Final = """() => [...document.querySelectorAll("button, a, input, select, textarea")]
  .filter((one) => one.checkVisibility())
  .filter((one) => !(one.labels?.length || one.getAttribute("aria-label")
    || one.textContent.trim()))
  .map((one) => one.outerHTML)"""

FAINT: Final = """(least) => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const over = (below, color) => {
    canvas.fillStyle = `rgb(${below.join()})`;
    canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => rgb
    .map((one) => one / 255)
    .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (element) => {
    const below = element.parentElement ? ground(element.parentElement) : [255, 255, 255];
    return over(below, getComputedStyle(element).backgroundColor);
  };
  return [...document.querySelectorAll("body *")]
    .filter((one) => one.checkVisibility() && !one.disabled)
    .filter((one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .filter((one) => !(one instanceof SVGElement) && !["SCRIPT", "OPTION"].includes(one.tagName))
    .map((one) => {
      const back = ground(one);
      const front = over(back, getComputedStyle(one).color);
      const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
      return [(a + 0.05) / (b + 0.05), one.textContent.trim().slice(0, 40)];
    })
    .filter(([contrast]) => contrast < least)
    .map(([contrast, text]) => `${contrast.toFixed(2)} ${text}`);
}"""


def url_of(cluster: LocalCluster, index: int, page: str = "cluster") -> str:
    """A page of one node's console."""
    return f"http://{cluster.nodes[index].console_address}/#/{page}"


async def roles(cluster: LocalCluster) -> tuple[int, int, int]:
    """The master, and the two others."""
    master, _ = await cluster.wait_for_shard()
    one, two = (index for index in range(3) if index != master)
    return master, one, two


async def published_count(cluster: LocalCluster) -> int:
    return (await cluster.wait_for_shard())[1].published_count


@pytest.mark.parametrize(("width", "is_dark"), [(1280, False), (1280, True), (360, False)])
async def test_pages_fit_have_contrast_and_name_what_can_be_done(
    width: int, is_dark: bool, filled: LocalCluster, open_page: Opened
) -> None:
    _, follower, _ = await roles(filled)
    page = await open_page(url_of(filled, follower), is_dark=is_dark, width=width)
    for name in PAGES:
        await page.goto(url_of(filled, follower, name))
        await expect(page.get_by_text(READY[name]).first).to_be_visible()
        if name == "cluster":  # two looks make a rate
            await expect(page.locator(".chart svg").first).to_be_visible()
        await expect(page.get_by_role("link", name="Healthy")).to_be_visible()
        look = f"{name.split('?')[0].replace('/', '-')}-{width}{'-dark' if is_dark else ''}"
        await keep(page, look)
        overflow = "document.documentElement.scrollWidth - innerWidth"
        assert await page.evaluate(overflow) <= 0, name
        assert await page.evaluate(UNNAMED) == [], name
        assert await page.evaluate(FAINT, CONTRAST_MIN) == [], name
        assert await page.get_by_role("heading", level=1).count() == 1


async def test_wheel_is_read_and_zoomed_with_the_keyboard(
    filled: LocalCluster, open_page: Opened
) -> None:
    page = await open_page(url_of(filled, 0, "wheel/day"))
    spokes = page.locator(".spoke")
    await expect(spokes).to_have_count(48)
    await spokes.first.focus()
    for key in ("ArrowRight", "ArrowRight", "End", "Home", "ArrowRight"):
        await page.keyboard.press(key)
    await expect(spokes.nth(1)).to_be_focused()
    words = await spokes.nth(1).get_attribute("aria-label") or ""
    assert "30 min" in words
    assert words.endswith(("messages", "message"))
    count = words.split(": ")[1].split(" ")[0]
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile("/wheel/from/"))
    await expect(spokes).to_have_count(60)
    await expect(page.locator(".dial-middle .line-0")).to_have_text(count)
    await keep(page, "wheel-zoomed")
    await page.get_by_text("Show as a table").click()
    await expect(page.get_by_role("table", name="Messages by due time")).to_be_visible()
    await page.get_by_role("button", name="Zoom out").click()
    await expect(spokes).to_have_count(48)


async def test_message_with_hostile_content_is_published_shown_as_text_and_cancelled(
    cluster: LocalCluster, open_page: Opened
) -> None:
    _, follower, _ = await roles(cluster)
    page = await open_page(url_of(cluster, follower, "messages"))
    form = page.locator("section", has_text="Publish a test message").last
    await form.get_by_label("Topic").fill("a|b.%")
    await form.get_by_label("Body").fill(HOSTILE)
    await form.get_by_role("button", name="Publish").click()
    await expect(form.get_by_role("alert")).to_contain_text("topic")  # "%" is the cluster's own
    await form.get_by_label("Topic").fill("orders")
    await form.get_by_label("Tags").fill(f"{HOSTILE}, two")
    await form.get_by_label("Keys").fill("javascript:alert(1)")
    await form.get_by_role("button", name="Publish").click()
    await form.locator("a").click()
    life = page.locator(".life")
    await expect(life.get_by_role("heading", name="Scheduled").first).to_be_visible()
    await expect(life.get_by_label("Body")).to_have_text(HOSTILE)
    await expect(life.locator(".chip").first).to_have_text(HOSTILE)
    await keep(page, "message")
    await page.goto(url_of(cluster, follower, "messages?topic=orders"))
    await expect(page.get_by_text("All of them").first).to_be_visible()
    await page.locator("td a.id, th a.id").first.click()
    await life.get_by_role("button", name="Cancel the message").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel the message").click()
    await expect(life.get_by_role("heading", name="Cancelled").first).to_be_visible()
    assert await page.evaluate("globalThis.hacked") is None
    assert await page.locator("img[src=x]").count() == 0


async def test_life_of_a_message_goes_on_to_its_dead_letters(
    filled: LocalCluster, open_page: Opened
) -> None:
    """Also in the console of a node that is not the master."""
    async with AsyncConsumer(filled.servers, group="auditors", topic="%DLQ%billing") as consumer:
        (letter,) = await consumer.receive(max_messages=1, wait_ms=WAIT_MS)
    _, follower, _ = await roles(filled)
    page = await open_page(url_of(filled, follower, "messages"))
    await page.get_by_label("Message id").fill(f" {str(letter.message_id).upper()} ")
    await page.keyboard.press("Enter")
    steps = page.locator(".life .steps")
    for title in ("Accepted", "Due", "Released", "Dead letter of billing"):
        await expect(steps.get_by_role("heading", name=title, exact=True)).to_be_visible()
    await expect(steps).to_contain_text("In epoch 1")
    await expect(steps).to_contain_text("After 1 delivery from orders")
    await expect(page.get_by_role("button", name="Cancel the message")).to_be_hidden()
    await keep(page, "message-dead")
    await page.goto(url_of(filled, follower, f"messages/{'0' * 48}"))
    await expect(page.get_by_text("No message has this id")).to_be_visible()


async def test_throughput_and_lateness_are_shown_as_they_happen(
    cluster: LocalCluster, open_page: Opened
) -> None:
    page = await open_page(url_of(cluster, 0))
    await expect(page.locator(".chart svg").first).to_be_visible()
    late = page.locator("figure.chart", has_text="Lateness")
    async with (
        AsyncProducer(cluster.servers) as producer,
        AsyncConsumer(cluster.servers, group="billing", topic="orders") as consumer,
    ):
        await expect(late).to_contain_text("Nothing was released in this time.")
        await producer.publish_many("orders", [Message(b"due now")] * 100)
        await consumer.ack(await consumer.receive(max_messages=100, wait_ms=WAIT_MS))
        # One look sees all of it, or two do.
        await expect(late.locator("circle.lone, path.line[d*=L]")).not_to_have_count(0)
        rates = page.locator("figure.chart", has_text="Released")
        await expect(rates.locator("path.line[d*=L]")).not_to_have_count(0)
        await keep(page, "cluster-live")


async def test_hostile_names_and_errors_are_shown_as_text(
    cluster: LocalCluster, open_page: Opened
) -> None:
    """Also what comes back from the address, the search and the filter."""
    page = await open_page(url_of(cluster, 0, f"topics?search={HOSTILE}"))
    await expect(page.get_by_text("No topic is called so")).to_be_visible()
    await page.goto(url_of(cluster, 0, f"messages/{HOSTILE.replace('/', '%2f')}"))
    await expect(page.locator(".life .failure")).to_contain_text("not a message id")
    await page.goto(url_of(cluster, 0, f"messages?topic={HOSTILE.replace('/', '%2f')}"))
    await expect(page.locator(".form-error", has_text="topic").first).to_be_visible()
    assert await page.evaluate("globalThis.hacked") is None
    assert await page.locator("img[src=x]").count() == 0


async def test_many_are_cancelled_only_when_their_number_is_typed(
    filled: LocalCluster, open_page: Opened
) -> None:
    page = await open_page(url_of(filled, 0, "messages"))
    form = page.locator("section", has=page.get_by_role("heading", name="Scheduled"))
    await form.get_by_label("Topic").fill("reminders")
    await form.get_by_label("Filter", exact=True).fill("paid && !unpaid")
    await form.get_by_role("button", name="Count").click()
    await expect(form.locator(".counted b")).to_have_text("200")
    await form.get_by_role("button", name="Cancel all of them").click()
    dialog = page.get_by_role("dialog", name="Cancel 200 messages?")
    yes = dialog.get_by_role("button", name="Cancel them")
    await expect(dialog.get_by_role("textbox")).to_be_focused()
    await keep(page, "cancel-many")
    for wrong in ("", "20", "2000"):
        await dialog.get_by_role("textbox").fill(wrong)
        await expect(yes).to_be_disabled()
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    async with AsyncAdmin(filled.servers) as admin:
        assert (await admin.count_pending("reminders")).matched_count == 600
        await form.get_by_role("button", name="Cancel all of them").click()
        await dialog.get_by_role("textbox").fill("200")
        await page.keyboard.press("Enter")
        await expect(form.get_by_text("200 messages cancelled")).to_be_visible()
        assert (await admin.count_pending("reminders")).matched_count == 400


async def test_mastership_is_handed_over_from_a_followers_console(
    cluster: LocalCluster, open_page: Opened
) -> None:
    _, follower, _ = await roles(cluster)
    name = cluster.nodes[follower].node_id
    page = await open_page(url_of(cluster, follower))
    await page.get_by_role("button", name=f"Make {name} the master").focus()
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name=f"Make {name} the master?")
    await expect(dialog.get_by_role("button", name="Leave it")).to_be_focused()
    await keep(page, "hand-over")
    await page.keyboard.press("Enter")
    await expect(dialog).to_be_hidden()
    assert (await cluster.wait_for_shard())[0] != follower
    await page.get_by_role("button", name=f"Make {name} the master").click()
    await dialog.get_by_role("button", name="Hand over").click()
    await expect(page.get_by_text(f"{name} is master now")).to_be_visible()
    card = page.get_by_role("region", name=name)
    await expect(card.get_by_text("Master", exact=True)).to_be_visible()
    assert (await cluster.wait_for_shard())[0] == follower


async def test_console_says_why_it_only_shows_and_goes_on_when_nodes_come_back(
    cluster: LocalCluster, open_page: Opened
) -> None:
    master, one, two = await roles(cluster)
    page = await open_page(url_of(cluster, one))
    await expect(page.get_by_role("link", name="Healthy")).to_be_visible()
    await cluster.kill_node(two)
    gone = page.get_by_role("region", name=cluster.nodes[two].node_id)
    await expect(gone.get_by_text("Does not answer")).to_be_visible()
    await keep(page, "node-gone")
    await cluster.kill_node(master)
    banner = page.locator("#banner")
    await expect(banner).to_contain_text("Read-only: This node hears from no majority")
    await page.goto(url_of(cluster, one, "messages"))
    await expect(page.get_by_role("button", name="Publish")).to_be_disabled()
    await keep(page, "no-majority")
    await cluster.kill_node(one)
    await expect(banner).to_contain_text("The node behind this console does not answer.")
    await keep(page, "no-answer")
    await cluster.start()
    await expect(banner).to_be_hidden(timeout=2 * WAIT_MS)
    await expect(page.get_by_role("button", name="Publish")).to_be_enabled()
    # The node has another token now.
    await page.get_by_label("Topic").last.fill("orders")
    await page.get_by_role("button", name="Publish").click()
    await expect(page.get_by_text("Published:")).to_be_visible()


async def test_colors_are_chosen_and_remembered(cluster: LocalCluster, open_page: Opened) -> None:
    page = await open_page(url_of(cluster, 0))
    paper = "getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(paper)
    await page.get_by_role("button", name="Colors: as the system").click()
    assert await page.evaluate(paper) == light
    await page.get_by_role("button", name="Colors: light").click()
    dark = await page.evaluate(paper)
    assert dark != light
    await page.reload()
    assert await page.evaluate(paper) == dark


# --- other origins ------------------------------------------------------------------------------


FOREIGN: Final = """<!doctype html><title>elsewhere</title>
<form id="form" method="post" enctype="text/plain" target="framed" action="{url}/api/publish">
  <input name='{{"topic":"stolen","body":"' value='"}}'></form>
<iframe name="framed" id="framed" src="{url}/"></iframe>
<script src="{url}/js/format.js"></script>"""

ATTACKS: Final = """async (url) => {
  const tried = {};
  const attempt = async (name, options) => {
    try {
      const answer = await fetch(`${url}/api/${name}`, options);
      tried[`${name} ${JSON.stringify(options)}`] = `${answer.type} ${answer.status}`;
    } catch (error) {
      tried[`${name} ${JSON.stringify(options)}`] = "refused";
    }
  };
  const body = JSON.stringify({topic: "stolen", body: "x"});
  await attempt("session", {});
  await attempt("cluster", {mode: "no-cors"});
  await attempt("publish", {method: "POST", body, mode: "no-cors"});
  await attempt("publish", {method: "POST", body, headers: {"Content-Type": "application/json"}});
  const sent = new Promise((resolve) => document.getElementById("framed").onload = resolve);
  document.getElementById("form").submit();
  await sent;
  return tried;
}"""


@pytest.fixture
async def elsewhere() -> AsyncIterator[dict[str, Any]]:
    """A web server of somebody else: its page and its port."""
    told: dict[str, Any] = {"page": b""}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + told["page"])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    told["port"] = server.sockets[0].getsockname()[1]
    yield told
    server.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_page_of_another_origin_gets_nothing_and_changes_nothing(
    host: str,
    cluster: LocalCluster,
    open_page: Opened,
    elsewhere: dict[str, Any],
    browser: Any,
) -> None:
    master, *_ = await roles(cluster)
    console = f"http://{cluster.nodes[master].console_address}"
    elsewhere["page"] = FOREIGN.format(url=console).encode()
    before = await published_count(cluster)
    context = await browser.new_context()  # its complaints are what is wanted
    page = await context.new_page()
    await page.goto(f"http://{host}:{elsewhere['port']}/")
    tried = await page.evaluate(ATTACKS, console)
    assert len(tried) == 4
    assert set(tried.values()) <= {"refused", "opaque 0"}
    framed = page.frame(name="framed")
    assert framed is None or await framed.locator("header.top").count() == 0
    assert await published_count(cluster) == before
    async with AsyncAdmin(cluster.servers) as admin:
        assert [topic.name for topic in await admin.topics()] == []


async def test_name_that_a_name_server_led_here_gets_nothing(
    cluster: LocalCluster, open_page: Opened
) -> None:
    port = cluster.nodes[0].console_address.rpartition(":")[2]
    page = await open_page(f"http://rebound.example:{port}/")
    await expect(page.locator("body")).to_contain_text("FOREIGN_HOST")
    answer = await page.evaluate("fetch('/api/session').then((one) => one.status)")
    assert answer == 421


async def test_thousand_consoles_do_not_keep_a_browser_out(
    cluster: LocalCluster, open_page: Opened
) -> None:
    host, _, port = cluster.nodes[0].console_address.rpartition(":")
    ask = f"GET /api/cluster HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
    writers = []
    for _ in range(1_000):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(ask)
        writers.append(writer)
    page = await open_page(url_of(cluster, 0))
    await expect(page.get_by_role("link", name="Healthy")).to_be_visible()
    async with AsyncProducer(cluster.servers) as producer:  # and the node goes on
        await producer.publish("orders", Message(b"x", delay_ms=HOUR_MS))
    for writer in writers:
        writer.close()


def test_screenshots_are_kept_outside_of_the_tree() -> None:
    ignored = (Path(__file__).resolve().parents[2] / ".gitignore").read_text()
    assert "build/" in ignored.split()


async def test_page_says_what_failed_and_goes_on_by_itself(
    cluster: LocalCluster, open_page: Opened
) -> None:
    page = await open_page(url_of(cluster, 0))
    told = {"status": 500, "json": {"error": {"reason": "X", "message": "It is broken."}}}
    await page.route("**/api/wheel*", lambda route: route.fulfill(**told), times=2)
    await page.get_by_role("link", name="Wheel", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("It is broken.")
    await keep(page, "failure")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("alert")).to_be_hidden()
    await expect(page.locator(".spoke").first).to_be_visible()


async def test_skip_link_leads_to_the_content(cluster: LocalCluster, open_page: Opened) -> None:
    page: Page = await open_page(url_of(cluster, 0))
    await expect(page.get_by_text("Make master").first).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(page.locator("#skip")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()
