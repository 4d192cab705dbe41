"""PySyncObj, and what makes it safe: journal, snapshot, codec and transport of our own."""
