"""The public API, hourwheel.v1, generated from proto/hourwheel/v1 by `make proto`."""
