"""What a worker's children are to load, and how, as one of their arguments."""

import json
from dataclasses import asdict, dataclass, field
from typing import Self

from hourwheel.transport.access_files import AccessFiles
from hourwheel.workers.app import App, load_app
from hourwheel.workers.logs import LogFormat, configure_logs


@dataclass(frozen=True)
class Program:
    """Where an app is, and what of it the command line says otherwise.

    Each child is handed it; secrets are in files, for arguments are seen by all of a machine.
    """

    target: str
    """"module:app"."""
    server: str = ""
    """In place of the app's; empty: the app's."""
    files: AccessFiles = field(default_factory=AccessFiles)
    """Likewise: TLS where they say so, and who calls."""
    log_format: LogFormat = LogFormat.TEXT

    def load(self) -> App:
        """The app, connected as it is to be.

        Raises:
            InvalidArgument: there is none, or the files cannot be read.
            FailedPrecondition: as `load_app`.
        """
        app = load_app(self.target)
        access, credentials = self.files.read(), app.credentials
        if access.tls is not None:
            credentials["tls"] = access.tls
        if access.token is not None or access.user is not None:
            credentials["token"], credentials["user"] = access.token, access.user
        if self.server or credentials != app.credentials:
            app.connect_to(self.server or app.server, **credentials)
        return app

    def load_in_child(self) -> App:
        """The same with logs, where the program has not set up its own.

        JSON holds for what it says while it is imported, too, as in the worker.

        Raises as `load`.
        """
        if self.log_format is LogFormat.JSON:
            configure_logs(self.log_format)
        app = self.load()
        if self.log_format is LogFormat.TEXT:
            configure_logs(self.log_format)
        return app

    def pack(self) -> str:
        """As an argument."""
        return json.dumps(asdict(self))

    @classmethod
    def unpack(cls, text: str) -> Self:
        """From that."""
        given = json.loads(text)
        files, log_format = AccessFiles(**given.pop("files")), LogFormat(given.pop("log_format"))
        return cls(**given, files=files, log_format=log_format)
