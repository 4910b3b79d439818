"""Benchmarks: paired ratios on one loaded model. `edgespec bench` is the door (docs/cli.md)."""
