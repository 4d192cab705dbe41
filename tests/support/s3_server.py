"""A server that speaks S3, in this process, and what may go wrong with one."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import boto3
import moto.backends
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUCKET = "bucket"
_KEYS = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "secret"}


class S3Server:
    """With one empty bucket. `answer` may answer instead of it: (status, body), or None."""

    def __init__(self) -> None:
        self.answer: Callable[[str, str], tuple[str, bytes] | None] = lambda _method, _path: None
        self.requests = list[tuple[str, str]]()
        logging.getLogger("werkzeug").setLevel(logging.WARNING)  # not each request
        self._app = DomainDispatcherApplication(create_backend_app)
        self._http = make_server("127.0.0.1", 0, self._serve, threaded=True)
        self._thread = Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._http.port}"
        self._is_up = False

    def start(self) -> None:
        self._thread.start()
        self._is_up = True
        moto.backends.get_backend("s3").reset()  # it is the process's
        self.client().create_bucket(Bucket=BUCKET)

    def stop(self) -> None:
        """From now on nobody answers there."""
        if self._is_up:
            self._is_up = False
            self._http.shutdown()
            self._thread.join()
            self._http.server_close()

    def client(self) -> Any:
        """Of another make than what is tested."""
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="someone-else",
            aws_secret_access_key="secret",
        )

    def paths(self) -> list[str]:
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return [one["Key"] for page in pages for one in page.get("Contents", ())]

    def _serve(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append((method, path))
        instead = self.answer(method, path)
        if instead is None:
            answered: Iterable[bytes] = self._app(environ, start_response)
            return answered
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        status, body = instead
        start_response(status, [("Content-Length", str(len(body)))])
        return [body]


@contextmanager
def s3_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """One that runs, and the environment in which programs find it."""
    server = S3Server()
    for name, value in (
        *_KEYS.items(),
        ("AWS_ENDPOINT_URL", server.url),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    server.start()
    try:
        yield server
    finally:
        server.stop()
