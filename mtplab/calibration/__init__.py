"""The calibration set: real prompts, cleaned, counted in tokens and matched to what production looks like (R9)."""
