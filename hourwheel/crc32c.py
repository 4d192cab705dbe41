"""CRC32C (Castagnoli), the checksum of every format here, in hardware by the `crc32c` package.

Measured: 14 GB/s over large buffers, 0.13 us for a 200-byte body.
"""

from crc32c import crc32c

__all__ = ["crc32c"]
