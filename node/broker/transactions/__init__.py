"""Transactions: prepared, committed, rolled back; and who is asked what became of them."""
