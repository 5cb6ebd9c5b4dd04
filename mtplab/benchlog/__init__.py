"""What a benchmark log says, and whether the requested delegate really ran."""
