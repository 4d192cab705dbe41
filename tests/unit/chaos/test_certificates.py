import ssl
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509

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
    certificate = x509.load_pem_x509_certificate(Path(files.tls_certificate_file).read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "n1" in names.get_values_for_type(x509.DNSName)
    assert ip_address("10.1.2.3") in names.get_values_for_type(x509.IPAddress)
