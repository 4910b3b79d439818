"""Multi-token prediction: a layer in the model's own file that was trained to guess one token further.

After arXiv 2404.19737, and section 2.2 of arXiv 2412.19437. Given its own output, such a layer guesses on.
"""

from __future__ import annotations

from .following import FollowingDrafter


class MtpDrafter(FollowingDrafter):
    """Draws from the first MTP layer of the target's own file."""

    name = "mtp"
