"""What belongs to a consumer group beside its messages: the dead letters that it has given up."""
