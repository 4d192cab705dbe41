"""A snapshot's files: sent (`source`), received (`sink`), and put in place (`install`)."""
