"""Runs the stand-in as a program: `python -m mtplab.standin`."""

from __future__ import annotations

import sys

from mtplab.standin import serve

if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:]))
