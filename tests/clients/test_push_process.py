"""`hourwheel push` as a process: its files change while it runs, and its metrics."""

from pathlib import Path

from hourwheel import AsyncAdmin, AsyncProducer, Message
from node.process.subprocess_node import ChildNode
from tests.support.eventually import until
from tests.support.probed_process import ProbedProcess
from tests.support.webhook_target import OK, How, Post, WebhookTarget

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = "whsec_" + "QUJD" * 8


class Push(ProbedProcess):
    """With its probes."""

    name = "push"

    def write(self, *targets: tuple[str, WebhookTarget], more: str = "") -> None:
        tables = [
            f"""
            [[subscriptions]]
            name = "{name}"
            group = "{name}-hooks"
            topics = ["orders"]
            url = "{target.url}"
            secret_file = "secret"
            allow_http = true
            allow_private = true
            """
            for name, target in targets
        ]
        self.put("".join(tables) + more)


async def publish(node: ChildNode, body: bytes) -> None:
    async with AsyncProducer(node.address) as producer:
        await producer.publish("orders", Message(body))


def answer(post: Post) -> How:
    return b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n" if post.body == b"bad" else OK


async def test_its_files_change_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    async with (
        ChildNode(tmp_path / "data", log_file=tmp_path / "node.log") as node,
        WebhookTarget(answer) as shop,
        WebhookTarget(answer) as other,
    ):
        async with AsyncAdmin(node.address) as admin:
            await admin.create_topic("orders")
            for group in ("a-hooks", "b-hooks"):
                await admin.put_group(group, attempts_max=1)
                await admin.put_subscription(group, "orders")
        push = Push(tmp_path, node.address)
        push.write(("a", shop))
        async with push:
            await publish(node, b"bad")
            done, refused = (
                f'hourwheel_push_posts_total{{result="{kind}",subscription="a"}}'
                for kind in ("done", "failed")
            )
            await until(lambda: push.metric(refused) == 1)
            await publish(node, b"1")
            await until(lambda: push.metric(done) == 1)
            assert push.metric('hourwheel_push_connections_total{subscription="a"}') == 1
            count = 'hourwheel_push_post_duration_seconds_count{subscription="a"}'
            assert push.metric(count) == 2
            assert push.metric('hourwheel_push_sent_bytes_total{subscription="a"}') == 4
            assert push.metric("hourwheel_push_files_refused") == 0

            push.write(("a", shop), more="nonsense = [")
            await until(lambda: push.metric("hourwheel_push_files_refused"))
            push.write(("a", shop), ("b", other), more="colour = 'red'\n")
            await until(lambda: "colour" in push.said)
            await publish(node, b"2")
            await until(lambda: push.metric(done) == 2)
            assert other.posts == []

            push.write(("a", other), ("b", other))
            await until(lambda: push.metric("hourwheel_push_subscriptions") == 2)
            assert push.metric("hourwheel_push_files_refused") == 0
            await publish(node, b"3")
            of_b = 'hourwheel_push_posts_total{result="done",subscription="b"}'
            await until(lambda: push.metric(of_b) == 3 and push.metric(done) == 3)
            assert [post.body for post in shop.posts] == [b"bad", b"1", b"2"]

            before = 5
            await until(lambda: len(other.posts) == before)
            (tmp_path / "secret").write_text(f"{OTHER_SECRET}\n{SECRET}\n")
            await until(lambda: push.said.count("has changed") == 2)
            await publish(node, b"4")
            await until(lambda: len(other.posts) == before + 2)
            assert len(other.posts[-1].headers["webhook-signature"].split()) == 2

            (tmp_path / "secret").unlink()
            await until(lambda: push.metric("hourwheel_push_files_refused"))
            await publish(node, b"5")
            await until(lambda: len(other.posts) == before + 4)
