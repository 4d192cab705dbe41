"""Bytes that clients and nodes share: record batches, delivery batches, ids, receipts, genes.

Pure: no gRPC, no clock. docs/FORMATS.md draws them.
"""
