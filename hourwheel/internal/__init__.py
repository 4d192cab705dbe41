"""What nodes write and say among themselves: generated protobuf code; no API."""
