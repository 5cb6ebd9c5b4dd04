"""Lets `python -m mtplab` be `mtplab`."""

from __future__ import annotations

from mtplab.cli import main

if __name__ == "__main__":
    main()
