"""Grants, retention and resets of groups in a real browser, with three nodes behind it."""

from playwright.async_api import expect

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message
from node.tools.local_cluster.nodes import LocalCluster
from tests.console.scenes import Opened, keep

DAY_MS = 86_400_000
HOSTILE = "<img src=x onerror=alert(1)>"


def url_of(cluster: LocalCluster, page: str) -> str:
    return f"http://{cluster.nodes[0].console_address}/#/{page}"


async def test_a_grant_is_given_replaced_and_revoked(
    filled: LocalCluster, open_page: Opened
) -> None:
    page = await open_page(url_of(filled, "access"))
    await expect(page.get_by_role("table", name="Users")).to_contain_text("alice")
    quotas = page.get_by_role("table", name="Quotas")
    await expect(quotas).to_contain_text("5,000 messages a second")
    form = page.get_by_role("region", name="Grant", exact=True)
    await form.get_by_label("Who").fill(HOSTILE)
    await form.get_by_label("Name", exact=True).fill("orders")
    await form.get_by_role("button", name="Grant").click()
    await expect(form.get_by_role("alert")).not_to_be_empty()  # nothing is allowed by it
    await form.get_by_label("publish").check()
    await form.get_by_role("button", name="Grant").click()
    row = page.get_by_role("table", name="Grants").get_by_role("row").filter(has_text=HOSTILE)
    await expect(row).to_contain_text("topic orders")
    await form.get_by_label("receive").check()
    await form.get_by_role("button", name="Grant").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("may publish now")
    await dialog.get_by_role("button", name="Replace it").click()
    await expect(row).to_contain_text("publish, receive")
    await keep(page, "access-granted")
    async with AsyncAdmin(filled.servers) as admin:
        (granted,) = [one for one in await admin.grants() if one.principal == HOSTILE]
        assert granted.operations == {"publish", "receive"}
        await row.get_by_role("button", name="Revoke").click()
        await dialog.get_by_role("button", name="Leave it").click()
        await expect(row).to_be_visible()
        await row.get_by_role("button", name="Revoke").click()
        await dialog.get_by_role("button", name="Revoke").click()
        await expect(row).to_have_count(0)
        assert [one.principal for one in await admin.grants()] == ["alice"]
    await page.get_by_label("Search by who").fill("nobody")
    await expect(page.get_by_text("No grants")).to_be_visible()


async def test_how_long_a_topic_keeps_what_was_released_is_shown_and_set(
    cluster: LocalCluster, open_page: Opened
) -> None:
    async with AsyncProducer(cluster.servers) as producer, AsyncAdmin(cluster.servers) as admin:
        await producer.publish("orders", Message(b"x"))
        page = await open_page(url_of(cluster, "topics"))
        await page.get_by_role("button", name="the nodes' default").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Days").fill("2.5")
        await dialog.get_by_role("button", name="Keep it so long").click()
        await expect(page.get_by_role("button", name="orders is kept for 2 d 12 h")).to_be_visible()
        assert (await admin.get_topic("orders")).retention_ms == DAY_MS * 5 // 2
        await keep(page, "topics-kept")


async def test_a_group_begins_anew_after_a_count_and_its_name(
    cluster: LocalCluster, open_page: Opened
) -> None:
    async with (
        AsyncProducer(cluster.servers) as producer,
        AsyncAdmin(cluster.servers) as admin,
        AsyncConsumer(cluster.servers, group="billing", topic="orders") as consumer,
    ):
        await producer.publish_many("orders", [Message(b"x"), Message(b"y")])
        count = 0
        while count < 2:
            messages = await consumer.receive(2, wait_ms=20_000)
            await consumer.ack(messages)
            count += len(messages)
        await consumer.close()
        page = await open_page(url_of(cluster, "groups"))
        await page.get_by_text("1 topic of billing").click()
        await page.get_by_role("button", name="Let billing begin anew in orders").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Begin with").select_option("first")
        await dialog.get_by_role("button", name="Count first").click()
        await expect(dialog).to_contain_text("It gets 2 messages again.")
        await expect(dialog.get_by_role("button", name="Begin anew")).to_be_disabled()
        assert (await admin.get_group("billing")).lags[0].unresolved_count == 0
        await dialog.get_by_role("textbox").fill("billing")
        await dialog.get_by_role("button", name="Begin anew").click()
        await expect(page.get_by_text("billing has 2 messages of orders to do.")).to_be_visible()
        assert (await admin.get_group("billing")).lags[0].unresolved_count == 2
        await keep(page, "group-reset")
