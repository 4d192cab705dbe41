"""Messages that are published together with a program's own commit, or never."""
