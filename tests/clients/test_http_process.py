"""`hourwheel http` as a process: its files change while it runs, and its metrics."""

import asyncio
import re
import ssl
from pathlib import Path

from node.process.subprocess_node import ChildNode
from tests.support.certificates import Authority
from tests.support.eventually import until
from tests.support.http_world import Answer, fetch
from tests.support.probed_process import ProbedProcess

MESSAGES = "/v1/topics/orders/messages"


class HttpProcess(ProbedProcess):
    """With its probes."""

    name = "http"
    url = ""

    def write(self, text: str) -> None:
        self.put(f'[http]\nlisten = "127.0.0.1:0"\n{text}')

    @property
    def is_ready(self) -> bool:
        return bool(self.url)

    def heard(self, line: str) -> None:
        super().heard(line)
        if found := re.search(r"HTTP on ([^,]+),", line):
            self.url = found[1]


async def post(
    process: HttpProcess, tls: ssl.SSLContext | None = None, *, host: str = "localhost"
) -> Answer:
    headers = {"content-type": "application/json", "host": host}
    raw = b'{"text": "x"}'
    return await asyncio.to_thread(fetch, process.url, "POST", MESSAGES, raw, headers, tls)


async def test_names_and_bounds_change_while_it_runs_and_what_it_counts(tmp_path: Path) -> None:
    async with ChildNode(tmp_path / "data", log_file=tmp_path / "node.log") as node:
        process = HttpProcess(tmp_path, node.address)
        process.write("")
        async with process:
            assert (await post(process)).status == 201
            assert (await post(process, host="shop.example")).reason == "FOREIGN_PAGE"
            missing = await asyncio.to_thread(fetch, process.url, "GET", "/none", None, {})
            assert missing.status == 404
            one = 'hourwheel_http_requests_total{route="%s",status="%s"}'
            assert process.metric(one % ("publish", 201)) == 1
            assert process.metric(one % ("publish", 403)) == 1
            assert process.metric(one % ("other", 404)) == 1
            durations = 'hourwheel_http_request_duration_seconds_count{route="publish"}'
            assert process.metric(durations) == 2
            assert process.metric('hourwheel_http_refused_total{reason="FOREIGN_PAGE"}') == 1
            assert process.metric("hourwheel_http_request_bytes_total") == 13
            assert process.metric("hourwheel_http_response_bytes_total") > 100
            assert process.metric("hourwheel_http_callers") == 1
            for gauge in ("inflight_requests", "long_polls", "body_bytes", "files_refused"):
                assert process.metric(f"hourwheel_http_{gauge}") == 0

            process.write('hosts = ["shop.example"]\nbody_bytes = 1')
            await until(lambda: process.metric("hourwheel_http_files_refused"))
            process.write('hosts = ["shop.example"]\nlisten = "127.0.0.1:1"')
            await until(lambda: "no TOML" in process.said)
            (tmp_path / "http.toml").write_text('[http]\nlisten = "127.0.0.1:1"')
            await until(lambda: "needs a restart" in process.said)
            assert (await post(process, host="shop.example")).status == 403

            process.write('hosts = ["shop.example"]\nbody_bytes = 1024')
            await until(lambda: "has changed" in process.said)
            assert process.metric("hourwheel_http_files_refused") == 0
            assert (await post(process, host="shop.example")).status == 201


async def test_certificates_and_whom_they_stand_for_change_while_it_runs(tmp_path: Path) -> None:
    authority, later = Authority(tmp_path), Authority(tmp_path, "later")
    authority.issue("http", "127.0.0.1")
    caller = authority.issue("shop", "client.example", common_name="shop")
    (tmp_path / "login").write_text("shop:secret")
    async with ChildNode(tmp_path / "data", log_file=tmp_path / "node.log") as node:
        process = HttpProcess(tmp_path, node.address)
        tls = 'cert = "http.crt"\nkey = "http.key"\n'
        callers = f'client_ca = "{authority.file}"\n[http.certificates.shop]\nlogin_file = "login"'
        process.write(tls + callers)

        def context(of: Authority) -> ssl.SSLContext:
            found = ssl.create_default_context(cafile=str(of.file))
            found.load_cert_chain(caller.certificate, caller.key)
            return found

        async with process:
            # whom the certificate stands for is passed on: the node knows no users
            assert (await post(process, context(authority))).reason == "UNAUTHENTICATED"
            (tmp_path / "http.key").write_text("nonsense")
            await until(lambda: process.metric("hourwheel_http_files_refused"))
            assert (await post(process, context(authority))).reason == "UNAUTHENTICATED"
            later.issue("http", "127.0.0.1")
            await until(lambda: not process.metric("hourwheel_http_files_refused"))
            assert (await post(process, context(later))).reason == "UNAUTHENTICATED"
            before = process.metric('hourwheel_http_limited_total{limit="handshake"}')
            try:
                await post(process, context(authority))
                raise AssertionError("the former certificate is still shown")
            except ssl.SSLError:
                pass
            handshakes = 'hourwheel_http_limited_total{limit="handshake"}'
            await until(lambda: process.metric(handshakes) == before + 1)

            process.write(tls + f'client_ca = "{authority.file}"\n')
            await until(lambda: process.said.count("has changed") == 2)
            unknown = await post(process, context(later))
            assert "this certificate stands for no principal" in unknown.json["detail"]
