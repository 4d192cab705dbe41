import pytest
import typer

from hourwheel.cli.options import connect, duration_option, servers_option, when_option
from hourwheel.due_time import When


def test_options_when_good() -> None:
    assert when_option("90s") == When(delay_ms=90_000)
    assert duration_option("90s") == 90_000


def test_options_when_bad() -> None:
    with pytest.raises(typer.BadParameter, match="no due time"):
        when_option("soon")
    with pytest.raises(typer.BadParameter, match="instant"):
        duration_option("2027-03-01T08:00:00Z")


async def test_servers_when_there_are_several() -> None:
    text = servers_option("a:1, b:1,a:1")
    assert text == "a:1,b:1"
    assert connect(text).endpoints.addresses == ("a:1", "b:1")


def test_servers_when_bad() -> None:
    with pytest.raises(typer.BadParameter, match="host:port"):
        servers_option("a:1,,b:1")
