"""A process that starts another one, as a broker does, and waits for its end: a stand-in."""

import subprocess
import sys

if __name__ == "__main__":
    subprocess.run(
        [sys.executable, "-c", "import signal; signal.pause()"], check=False, start_new_session=True
    )
