"""EAGLE speculation: one decoder layer over (token, feature) pairs guesses the next tokens.

After arXiv 2401.15077 (the layer), 2406.16858 and 2503.01840 (features out of three layers of the target, and a layer
that is trained on its own features). edgespec/heads/eagle.py has the forms of head; the layer runs in llama.cpp.
"""

from __future__ import annotations

from .following import FollowingDrafter


class EagleDrafter(FollowingDrafter):
    """Draws from an EAGLE head. q is 0 outside the head's vocabulary."""

    name = "eagle"
