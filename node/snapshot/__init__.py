"""A snapshot's files: giving them (`source`), taking them in (`sink`), putting them in place."""
