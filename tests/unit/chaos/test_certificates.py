import ssl
from pathlib import Path

from chaos.certificates import Authority, can_certify
from tests.support.reaper import say


def test_certificate_names_its_node_when_the_authority_issues_it(tmp_path: Path) -> None:
    if not can_certify():
        say("no certificates: there is no openssl")
        return
    authority = Authority.make(tmp_path)
    files = authority.issue("n1", ("10.1.2.3",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.tls_certificate_file, files.tls_key_file)
    context.load_verify_locations(files.tls_authority_file)
    decode = ssl._ssl._test_decode_cert  # type: ignore[attr-defined]
    names = decode(files.tls_certificate_file)["subjectAltName"]
    assert ("DNS", "n1") in names
    assert ("IP Address", "10.1.2.3") in names
