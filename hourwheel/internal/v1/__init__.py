"""Generated from proto/hourwheel/internal/v1 by `make proto`; the package is hourwheel.v1."""
