"""Figures, rounds, comparability, pitfalls and the conclusion."""
