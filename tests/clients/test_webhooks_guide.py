"""What stands in docs/guides/webhooks.md: the configuration, the secret, and how to verify; and
`hourwheel push` as users run it."""

import asyncio
import json
import os
import signal
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hourwheel import AsyncAdmin, AsyncConsumer, AsyncProducer, Message
from hourwheel.webhooks.settings import PushSettings, Subscription
from hourwheel.webhooks.signature import read_secrets, sign
from node.process.subprocess_node import ChildNode
from tests.support.eventually import until
from tests.support.guide_commands import fenced
from tests.support.webhook_target import OK, SILENT, WebhookTarget
from tests.tidy import tree

PAGE: Final = "docs/guides/webhooks.md"
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
AT_S: Final = 1_800_000_000


def of_python() -> Callable[..., bool]:
    (code,) = fenced(PAGE, "python")
    found: dict[str, Any] = {}
    exec(compile(code, PAGE, "exec"), found)
    verify: Callable[..., bool] = found["verify"]
    return verify


async def of_node(headers: dict[str, str], body: bytes, now_s: int) -> bool:
    (code,) = fenced(PAGE, "javascript")
    call = (
        f"verify({json.dumps(SECRET)}, {json.dumps(headers)}, Buffer.from({list(body)}), {now_s})"
    )
    program = await asyncio.create_subprocess_exec(
        *("node", "-e", f"{code}\nconsole.log({call})"), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await program.communicate()
    assert program.returncode == 0
    return out == b"true\n"


async def test_both_programs_verify() -> None:
    verify = of_python()
    body = b'{"id": 1}\xff'
    signature = "v1,AAAA " + sign(read_secrets(SECRET), "id", AT_S, body)
    headers = {
        "webhook-id": "id",
        "webhook-timestamp": str(AT_S),
        "webhook-signature": signature,
    }
    cases: list[tuple[dict[str, str], bytes, int, bool]] = [
        (headers, body, AT_S + 10, True),
        (headers, body + b"x", AT_S, False),
        (headers, body, AT_S + 301, False),
        ({**headers, "webhook-id": "other"}, body, AT_S, False),
    ]
    for given, raw, now_s, is_good in cases:
        assert verify(SECRET, given, raw, now_s) == is_good
        assert await of_node(given, raw, now_s) == is_good


async def test_the_page_has_each_key_and_its_secret_is_one(tmp_path: Path) -> None:
    text = tree.text(PAGE)
    for key in Subscription.model_fields:
        assert f"`{key}`" in text
    (example,) = fenced(PAGE, "toml")
    assert PushSettings.model_validate(tomllib.loads(example)).subscriptions[0].name == "shop"
    (line,) = fenced(PAGE, "sh")
    shell = await asyncio.create_subprocess_shell(line, cwd=tmp_path)
    assert await shell.wait() == 0
    assert len(read_secrets((tmp_path / "shop.secret").read_text())[0]) == 32


async def test_push_is_stopped_twice(tmp_path: Path) -> None:
    async with (
        ChildNode(tmp_path / "data", log_file=tmp_path / "node.log") as node,
        WebhookTarget(lambda post: OK if post.body == b"good" else SILENT) as target,
    ):
        (tmp_path / "push.toml").write_text(f"""
            [[subscriptions]]
            name = "shop"
            group = "hooks"
            topics = ["orders"]
            url = "{target.url}"
            secret_env = "SHOP_SECRET"
            timeout_ms = 600_000
            allow_http = true
            allow_private = true
        """)
        async with AsyncAdmin(node.address) as admin:
            await admin.create_topic("orders")
        async with AsyncProducer(node.address) as producer:
            await producer.publish_many("orders", [Message(b"good"), Message(b"bad")])
        push = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hourwheel.cli", "push", "--config", "push.toml"),
            cwd=tmp_path,
            env={**os.environ, "HOURWHEEL_SERVER": node.address, "SHOP_SECRET": SECRET},
            stderr=asyncio.subprocess.PIPE,
        )
        assert push.stderr is not None
        try:
            await until(lambda: len(target.posts) == 2)
            push.send_signal(signal.SIGTERM)
            while b"stopping" not in await push.stderr.readline():
                assert push.returncode is None
            push.send_signal(signal.SIGTERM)
            assert await push.wait() == 0
        finally:
            if push.returncode is None:
                push.kill()
                await push.wait()
        said = (await push.stderr.read()).decode()
        assert "they come again" in said
        assert "Traceback" not in said
        async with AsyncConsumer(node.address, group="hooks", topic="orders") as consumer:
            (again,) = await consumer.receive(wait_ms=60_000)
            assert (again.body, again.attempt) == (b"bad", 2)
