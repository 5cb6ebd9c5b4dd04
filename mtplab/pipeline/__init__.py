"""Stages, the worker processes they run in, and the cache of what they made."""
