from pathlib import Path
from typing import Any

import pytest

from hourwheel.errors import ConfigError
from hourwheel.webhooks.settings import Subscription, read_push_settings, target_of

ONE = """
[[subscriptions]]
name = "shop"
group = "hooks"
topics = ["orders"]
url = "https://shop.example/hook?a=b"
secret_env = "SHOP_SECRET"
"""
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def read(folder: Path, text: str) -> Subscription:
    file = folder / "push.toml"
    file.write_text(text)
    return read_push_settings(file).subscriptions[0]


def test_a_subscription(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = read(tmp_path, ONE)
    assert one.target == (True, "shop.example", 443, "shop.example", "/hook?a=b")
    assert one.wanted is None
    with pytest.raises(ConfigError, match="shop: 1 to 4 secrets"):
        one.secrets()
    monkeypatch.setenv("SHOP_SECRET", SECRET)
    assert len(one.secrets()[0]) == 24
    (tmp_path / "secret").write_text(SECRET)
    of_file = one.model_copy(update={"secret_env": "", "secret_file": str(tmp_path / "secret")})
    assert of_file.secrets() == one.secrets()
    gone = of_file.model_copy(update={"secret_file": str(tmp_path / "none")})
    with pytest.raises(ConfigError, match="cannot be read"):
        gone.secrets()
    assert read(tmp_path, ONE + 'filter = "paid"').wanted is not None
    assert read(tmp_path, ONE + 'sql = "a > 1"').wanted is not None


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("colour = 1", "colour"),
        ("timeout_ms = 1", "timeout_ms"),
        ("concurrency = '8'", "concurrency"),
        ('secret_file = "x"', "either secret_file or secret_env"),
        ('filter = "a"\nsql = "b"', "filter or sql"),
        ('headers = {"Webhook-Id" = "x"}', "headers.Webhook-Id"),
        ('headers = {"Host" = "x"}', "headers.Host"),
        ('headers = {"X" = "a\\r\\nb: c"}', "headers.X"),
        ('headers = {"X Y" = "a"}', "headers.X Y"),
        (ONE, "one name"),
    ],
)
def test_what_cannot_be(tmp_path: Path, more: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(tmp_path, ONE + more)


@pytest.mark.parametrize(
    "url",
    [
        *("http://shop.example/", "ftp://shop.example/", "shop.example", "https://", "https:///x"),
        *("https://a:b@shop.example/", "https://shop.example/#x", "https://shop.example:0/"),
        *("https://shop.example:99999/", "https://shop example/", "https://shop.example\\@evil/"),
        "https://shop.example/\r\nx: y",
        "https://shop.example/" + "x" * 3_000,
    ],
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match=r"url|[Pp]ort"):
        target_of(url, allow_http=False)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://[::1]:80", (False, "::1", 80, "[::1]:80", "/")),
        ("https://shop.example:8443?q", (True, "shop.example", 8443, "shop.example:8443", "/?q")),
    ],
)
def test_targets(url: str, target: tuple[Any, ...]) -> None:
    assert target_of(url, allow_http=True) == target
