"""`python -m edgespec`: the command without its script."""

from .cli import main

main()
