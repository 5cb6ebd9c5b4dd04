"""`python -m mtplab.engine OPTIONS_JSON`: an engine as a process of its own, for viewers."""

from __future__ import annotations

import sys

import msgspec

from mtplab.engine.options import EngineOptions
from mtplab.engine.service import serve_detached


def main() -> int:
    """Run until told to stop; the first line on stdout says where the session is, or why there is none."""
    return serve_detached(msgspec.json.decode(sys.argv[1], type=EngineOptions))


if __name__ == "__main__":
    sys.exit(main())
