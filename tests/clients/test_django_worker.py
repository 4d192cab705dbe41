"""The Django example as its page says: a project, its web process, and a worker beside it."""

import asyncio
import os
import re
import shlex
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Final

from hourwheel import AsyncProducer, Message
from node.process.subprocess_node import ChildNode
from tests.support.addresses import free_address
from tests.support.eventually import until_told
from tests.tidy import tree

FOLDER: Final = tree.ROOT / "docs/examples"
SETTINGS: Final = """
    from pathlib import Path

    DATABASES = {"default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": Path(__file__).with_name("shop.sqlite"),
        "OPTIONS": {"timeout": 60},
    }}
    USE_TZ = True
"""
WEB: Final = """
    import django

    django.setup()

    from datetime import UTC, datetime, timedelta

    from django.db import connection, transaction
    from django_shop import Order, Outbox, place

    HALF_AN_HOUR_AGO = datetime.now(UTC) - timedelta(minutes=30)
"""
TABLES: Final = """
    with connection.schema_editor() as editor:
        editor.create_model(Order)
        editor.create_model(Outbox)
"""


class Project:
    """A folder with settings and the two files of the example."""

    def __init__(self, folder: Path) -> None:
        for name in ("django_shop.py", "django_worker.py"):
            shutil.copy(FOLDER / name, folder)
        (folder / "settings.py").write_text(textwrap.dedent(SETTINGS))
        self._folder = folder

    async def run(self, program: str, server: str) -> str:
        """What a program with Django set up prints, at this broker."""
        text = textwrap.dedent(WEB) + textwrap.dedent(program)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", text),
            cwd=self._folder,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "settings", "HOURWHEEL_SERVER": server},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        return output.decode()

    async def start_worker(self, server: str) -> asyncio.subprocess.Process:
        """As the example itself says how."""
        text = (FOLDER / "django_worker.py").read_text()
        (line,) = re.findall(r"^    (.*hourwheel worker .*)$", text, re.MULTILINE)
        setting, program, *words = shlex.split(line)
        assert program == "hourwheel"
        name, _, value = setting.partition("=")
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hourwheel.cli", *words),
            cwd=self._folder,
            env={**os.environ, name: value, "HOURWHEEL_SERVER": server},
        )


async def test_a_worker_closes_orders_that_a_web_process_has_committed(tmp_path: Path) -> None:
    project, nobody = Project(tmp_path), free_address()
    async with ChildNode(tmp_path / "data", log_file=tmp_path / "node.log") as node:
        said = await project.run(
            TABLES
            + """
    place(HALF_AN_HOUR_AGO)
    try:
        with transaction.atomic():
            place(HALF_AN_HOUR_AGO)
            raise ValueError("no stock")
    except ValueError:
        print(Order.objects.count(), Outbox.objects.count())
    """,
            node.address,
        )
        assert said.split() == ["1", "0"]
        # Nobody answers: the order is there all the same, and its row is left for the worker.
        said = await project.run(
            "place(HALF_AN_HOUR_AGO); print(Order.objects.count(), Outbox.objects.count())", nobody
        )
        assert said.split() == ["2", "1"]
        worker = await project.start_worker(node.address)
        try:

            async def states(*expected: str) -> bool:
                asked = "print(*Order.objects.order_by('pk').values_list('state', flat=True))"
                return (await project.run(asked, node.address)).split() == list(expected)

            await until_told(lambda: states("closed", "unpaid"))
            async with AsyncProducer(node.address) as producer:
                await producer.publish("shop.relay", Message(b""))  # a minute is over
            await until_told(lambda: states("closed", "closed"))
            assert await project.run("print(Outbox.objects.count())", node.address) == "0\n"
        finally:
            worker.terminate()
            code = await worker.wait()
    assert code == 0
