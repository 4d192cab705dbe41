"""RecurrenceService: messages that recur."""
