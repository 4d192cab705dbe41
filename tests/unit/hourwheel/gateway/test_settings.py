from pathlib import Path

import pytest

from hourwheel.errors import ConfigError
from hourwheel.gateway.settings import LISTEN, read_settings


def test_what_is_not_said_has_defaults_and_an_option_counts_more(tmp_path: Path) -> None:
    assert read_settings(None).listen == LISTEN
    file = tmp_path / "http.toml"
    file.write_text('[http]\nlisten = "127.0.0.1:1"\nhosts = ["api.example"]\n')
    found = read_settings(file, "[::1]:2")
    assert (found.address, found.hosts) == (("::1", 2), ("api.example",))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[http]\nlissen = 'a:1'", "http.lissen: Extra inputs"),
        ("[http]\nconnections = '5'", "http.connections"),
        ("[http]\nconnections = 0", "http.connections"),
        ("[http]\nlisten = 'here'", "is not host:port"),
        ("[http]\nlisten = '0.0.0.0:80'", "in the clear"),
        ("[http]\ncert = 'x'", "cert goes with key"),
        ("[http]\nclient_ca = 'x'", "needs cert and key"),
        ("[http.certificates.shop]\ntoken_file = 'x'", "need client_ca"),
        ("[http.certificates.shop]", "either login_file or token_file"),
        ("[http", "is no TOML"),
        ("x = '\xff'", "no TOML"),
    ],
)
def test_what_cannot_be(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "http.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=why):
        read_settings(file)


def test_behind_a_proxy_it_may_listen_anywhere(tmp_path: Path) -> None:
    file = tmp_path / "http.toml"
    file.write_text('[http]\nlisten = "0.0.0.0:80"\nbehind_proxy = true\n')
    assert read_settings(file).behind_proxy
    with pytest.raises(ConfigError, match="cannot be read"):
        read_settings(tmp_path / "none")
    file.write_bytes(b"#" * (1 << 20) + b"#")
    with pytest.raises(ConfigError, match="larger"):
        read_settings(file)
