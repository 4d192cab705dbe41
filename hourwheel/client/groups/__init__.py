"""What belongs to a consumer group beside its messages: its dead letters, and where it goes on."""
