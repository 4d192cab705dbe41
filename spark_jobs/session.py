"""The Spark session that the jobs run in: on this machine by default, or wherever they are sent.

Started by `spark-submit`, the session is the one that it describes, and nothing of it is changed
but what the jobs rely on. Otherwise Spark runs inside this process's own Java, with memory for a
laptop: the work is done by numpy in Python processes beside it.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Final

from pyspark.sql import SparkSession

from hourwheel import errors
from spark_jobs.logs import source as log_source
from spark_jobs.schedule import source as schedule_source

JAVA_VERSION_MIN: Final = 17
DRIVER_MEMORY: Final = "2g"
_LOG_CONFIG: Final = Path(__file__).resolve().with_name("log4j2.properties")
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set for programs that spark-submit started: there is a JVM already."""
_JAVA_S: Final = 30
_ALWAYS: Final = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOCAL: Final = {
    "spark.driver.memory": DRIVER_MEMORY,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Over TCP each task waits for a delayed acknowledgement of 40 ms.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": "8",
}
FAST: Final[Mapping[str, str]] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.shuffle.compress": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
}
"""Settings that make starting fast, and long work slow: for tests."""


def build_session(
    name: str, *, master: str = "", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """The session, with our formats `hourwheel` and `hourwheel.schedule` registered.

    Args:
        name: of the application.
        master: where to run; empty: as spark-submit says, else `local[*]`.
        settings: of Spark, over the defaults here.

    Raises:
        NoJava: there is no Java for Spark to run in.
    """
    settings = dict(settings or {})
    is_submitted = _SUBMITTED in os.environ
    defaults = dict(_ALWAYS)
    if not is_submitted:
        master = master or os.environ.get("SPARK_MASTER", "") or "local[*]"
        if master.startswith("local"):
            require_java()
            prepare_workers()
            defaults.update(_LOCAL)
            quiet = f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}"
            settings[_JAVA_OPTIONS] = f"{quiet} {settings.get(_JAVA_OPTIONS, '')}".strip()
    builder = SparkSession.builder.appName(name)
    if master:
        builder = builder.master(master)
    for key, value in {**defaults, **settings}.items():
        builder = builder.config(key, value)
    with interrupts_later():
        spark = builder.getOrCreate()
    log_source.register(spark)
    schedule_source.register(spark)
    return spark


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Let Ctrl-C wait until the end of the block; a second one does not wait.

    An interrupt while pyspark starts Java takes away the folder in which Java is about to say where
    it listens. Java does not end then, although its program has gone.

    Raises:
        KeyboardInterrupt: behind the block, where it was interrupted.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # no interrupt is raised here
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def end_workers(spark: SparkSession) -> None:
    """End the Python processes of a session of this machine; call it before `spark.stop()`.

    Else they find their sockets closed, now and then, and print how surprised they are.
    """
    context = spark.sparkContext
    if (context.master or "").startswith("local"):
        (daemon,) = context.parallelize([0], 1).map(lambda _: os.getppid()).collect()
        with suppress(ProcessLookupError):
            os.killpg(daemon, signal.SIGKILL)  # it leads a group, and they ignore gentler ones


def prepare_workers() -> None:
    """Let Spark's Python processes be this very Python, with this tree."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    root = str(Path(__file__).resolve().parents[1])
    others = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    if root not in others:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *others])


def require_java() -> str:
    """The path of a Java that is recent enough: `$JAVA_HOME/bin/java`, or the one on the path.

    Raises:
        NoJava: there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME", "")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    how = f"install Java {JAVA_VERSION_MIN} or later (openjdk-17-jre-headless), or set JAVA_HOME"
    if found is None:
        where = f"in JAVA_HOME {home}" if home else "on the path"
        raise errors.NoJava(f"no java {where}, and Spark runs in it: {how}")
    version = java_version(_ask_version(found))
    if version < JAVA_VERSION_MIN:
        raise errors.NoJava(f"{found} is Java {version or 'of no known version'}: {how}")
    return found


def _ask_version(java: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def java_version(text: str) -> int:
    """The feature version in what `java -version` prints: 8, 17, 21; 0 where there is none."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return 0
    major, minor = int(match[1]), int(match[2] or 0)
    return minor if major == 1 else major
