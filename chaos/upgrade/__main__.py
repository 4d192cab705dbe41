"""The command: see `chaos.upgrade.rolling`."""

import sys

from chaos.upgrade.rolling import main

if __name__ == "__main__":
    sys.exit(main())
