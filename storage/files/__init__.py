"""The disk as a port, the real one, and small files that are replaced as a whole."""
