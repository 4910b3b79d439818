"""`edgespec tune`: which form of a model runs fastest here, as a target and as a draft (docs/cli.md)."""
