"""The batch of one step, from which towers get their input."""

from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """The rows of one step's batch that belong to this rank."""

    step: int
    rows: slice  # of the whole batch, over all ranks
    items: Tensor  # (n,): places in the training part
    ids: Tensor  # (n,) or (n, g)
    data: Tensor  # (n, c, h, w), (n, f) or (n, t, c)
    partner_data: Tensor  # the data of the second side: those of the partners, or tokens (n, t)
    starts: Tensor  # (n,): where the windows in `data` begin in their sequences; 0 for other data
    distinct: bool = False  # no two rows of the step share an id

    def first(self, count: int) -> "Batch":
        """Return the first `count` rows."""
        chosen = slice(count)
        return replace(
            self,
            rows=slice(self.rows.start, min(self.rows.stop, self.rows.start + count)),
            items=self.items[chosen],
            ids=self.ids[chosen],
            data=self.data[chosen],
            partner_data=self.partner_data[chosen],
            starts=self.starts[chosen],
        )
