"""The command: see `chaos.upgrade.rolling`."""

import sys

from chaos.upgrade.rolling import main

sys.exit(main())
