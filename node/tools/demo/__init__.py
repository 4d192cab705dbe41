"""`make demo` and `hourwheel demo`: two years of orders replayed against three nodes."""
