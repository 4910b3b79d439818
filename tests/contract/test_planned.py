"""The planned drafter keeps the drafter contract and the target's law, whatever the clock makes it plan."""

from __future__ import annotations

from edgespec.drafters import Resources, planned
from edgespec.drafting import Drafter
from edgespec.planning import Costs, CostTable
from edgespec.table_model import TableModel
from edgespec.testing import DrafterContract

CHEAP = CostTable((1, 2, 4, 8, 16), (10.0, 10.1, 10.2, 10.3, 10.4))  # drafting always seems worth a try
DRAFT_STEPS = CostTable((1, 16), (0.01, 0.02))


def _planned(target: TableModel, draft_seed: int) -> Drafter:
    draft = TableModel(target.vocab.size, seed=draft_seed)
    return planned(("suffix", "lookup", "model"), Resources(draft=draft), Costs(CHEAP), draft_costs=DRAFT_STEPS)


class TestPlannedDrafter(DrafterContract):
    def make_drafter(self, target: TableModel) -> Drafter:
        return _planned(target, 7)
