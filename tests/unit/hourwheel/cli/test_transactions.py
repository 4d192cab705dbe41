import asyncio
import json

from typer.testing import CliRunner, Result

from hourwheel.cli.app import app
from hourwheel.cli.exit_codes import ExitCode
from hourwheel.client.message import Message
from hourwheel.client.transactions.client import AsyncTransactions
from tests.support.api_world import ApiWorld


async def test_operators_look_at_transactions_and_end_them() -> None:
    async with ApiWorld() as world, AsyncTransactions(world.address, group="tills") as client:
        runner = CliRunner(env={"HOURWHEEL_SERVER": world.address, "COLUMNS": "160"})

        async def cli(*arguments: str) -> Result:
            words = ["transactions", *arguments]
            return await asyncio.to_thread(runner.invoke, app, words, catch_exceptions=False)

        first, second = [await client.prepare({"orders": Message(b"paid")}) for _ in range(2)]
        listed = await cli("list", "--json")
        rows = [json.loads(line) for line in listed.stdout.splitlines()]
        assert [row["transaction_id"] for row in rows] == [
            *(first.transaction_id, second.transaction_id)
        ]
        assert "tills" in (await cli("list", "--open", "--limit", "1")).stdout
        done = await cli("commit", first.transaction_id, "--yes", "--json")
        assert json.loads(done.stdout)["state"] == "COMMITTED"
        done = await cli("rollback", second.transaction_id, "--topic", "orders", "--yes")
        assert "ROLLED_BACK" in done.stdout
        assert (await cli("rollback", first.transaction_id, "--yes")).exit_code != ExitCode.OK
        shown = await cli("show", first.transaction_id, "--json")
        facts = json.loads(shown.stdout)
        assert (facts["state"], len(facts["message_ids"])) == ("COMMITTED", 1)
        assert "COMMITTED" in (await cli("show", first.transaction_id)).stdout
