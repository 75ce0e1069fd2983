"""A step's batch, as pairs make it and towers are given it."""

from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """This rank's rows of one step's batch."""

    step: int
    rows: slice  # of the whole batch, over all ranks
    items: Tensor  # (n,): places in the training part
    ids: Tensor  # (n,) or (n, g)
    data: Tensor  # (n, c, h, w), (n, f) or (n, t, c)
    partner_data: Tensor  # the data of the second side, such as those of the partners, or tokens (n, t)
    starts: Tensor  # (n,): where in their sequences the windows `data` begin; 0 for what is no sequence
    distinct: bool = False  # no two rows of the step share an id

    def first(self, count: int) -> "Batch":
        """Return the first `count` rows."""
        some = slice(count)
        return replace(
            self,
            rows=slice(self.rows.start, min(self.rows.stop, self.rows.start + count)),
            items=self.items[some],
            ids=self.ids[some],
            data=self.data[some],
            partner_data=self.partner_data[some],
            starts=self.starts[some],
        )
