"""Run as `python -m mtplab.tokenrunner`, or by the path of this folder."""

import sys

from mtplab.tokenrunner.runner import main

if __name__ == "__main__":
    sys.exit(main())
