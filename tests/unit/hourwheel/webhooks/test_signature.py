import base64

import pytest

from hourwheel.errors import ConfigError
from hourwheel.webhooks.signature import read_secrets, sign

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_example_of_standard_webhooks() -> None:
    (secret,) = read_secrets(SECRET + "\n")
    found = sign([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}')
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_while_a_secret_changes_both_sign() -> None:
    old, new = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
    secrets = read_secrets(f"whsec_{new}\n\nwhsec_{old}\n")
    both = sign(secrets, "id", 5, b"x").split()
    assert both == [sign([one], "id", 5, b"x") for one in secrets]
    assert sign(secrets, "id", 6, b"x").split() != both
    assert sign(secrets, "ie", 5, b"x").split() != both


@pytest.mark.parametrize(
    "text",
    [
        *("", "secret", "whsec_", "whsec_!!", "whsec_" + base64.b64encode(b"x" * 23).decode()),
        "whsec_" + base64.b64encode(b"x" * 65).decode(),
        "\n".join([SECRET] * 5),
    ],
)
def test_what_is_no_secret_is_not_shown(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_secrets(text)
    assert caught.value.message in {
        "1 to 4 secrets are needed, one a line",
        "a secret is whsec_ and the base64 of 24 to 64 bytes",
    }
