"""The process that owns a phone."""
