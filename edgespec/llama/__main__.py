"""`python -m edgespec.llama`: which weight buffers run on this CPU (see probe.py)."""

import sys

from .probe import main

sys.exit(main(sys.argv[1:]))
