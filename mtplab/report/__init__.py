"""Sessions as tables and JSON, for people and for scripts."""
