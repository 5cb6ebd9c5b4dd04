"""From torch to LiteRT and back to numbers: export, align, quantise, audit, run."""
