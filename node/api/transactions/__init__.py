"""TransactionService, and its messages as the engine has them."""
