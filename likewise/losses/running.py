"""Running sums over the tiles of a score matrix for forward, and ∂loss/∂score of each tile for backward.

Online softmax (Milakov and Gimelshein, 2018): sums are relative to the highest score so far. Backward uses the tile
that forward saved, if there was only one, and otherwise computes the tiles again.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from likewise.losses.inputs import autocast_off
from likewise.losses.masks import Mask
from likewise.losses.tiles import Scratch, add_product, tiles, tiles_above_diagonal


class RunningLogSumExp:
    """log Σ e^score of each row. Unless scores are safe to exponentiate, sums are relative to the highest so far."""

    def __init__(self, length: int, like: Tensor, safe: bool) -> None:
        self.total = like.new_zeros(length)
        self.highest = None if safe else like.new_full((length,), -torch.inf)

    def add(self, rows: slice, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        """Add a tile (r, c). Return its weights, which overwrite it, and the factor applied to earlier sums."""
        if self.highest is None:
            weights = scores.exp_()
            self.total[rows].add_(weights.sum(dim=1))
            return weights, None
        before = self.highest[rows]
        highest = torch.maximum(before, scores.amax(dim=1))
        shift = finite(highest)
        rescale = (before - shift).exp()
        weights = scores.sub_(shift[:, None]).exp_()
        self.total[rows].mul_(rescale).add_(weights.sum(dim=1))
        self.highest[rows] = highest
        return weights, rescale

    def result(self) -> Tensor:
        return self.total.log() if self.highest is None else self.highest + self.total.log()


def finite(lse: Tensor) -> Tensor:
    """Replace -inf, the log-sum of a row without candidates, by 0, so that its weights e^{-inf} are 0 and not NaN."""
    return lse.masked_fill(lse == -torch.inf, 0)


def add_both(
    scores: Tensor, rows: slice, columns: slice, row_sums: RunningLogSumExp, column_sums: RunningLogSumExp
) -> None:
    """Add one tile to the sums of its rows and of its columns."""
    if row_sums.highest is None:  # rows and columns share one exponential
        row_sums.add(rows, scores)
        column_sums.total[columns].add_(scores.sum(dim=0))
    else:
        row_sums.add(rows, scores.clone())
        column_sums.add(columns, scores.T)


class Pull:
    """∂loss/∂score of any tile, from the log-sums of rows (and columns) and their gradients.

    ∂/∂s_ij = row_grad_i e^{s_ij − row_lse_i} + column_grad_j e^{s_ij − column_lse_j}
    """

    def __init__(self, row: tuple[Tensor, Tensor], column: tuple[Tensor, Tensor] | None, safe: bool) -> None:
        self.safe = safe
        self.row = self._side(*row)
        self.column = self.row if column is row else column and self._side(*column)
        self.scratch = Scratch(row[0])

    def _side(self, lse: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        # e^{s − lse} grad = e^s (e^{−lse} grad): if e^s is safe, only the factor in brackets has to be stored.
        lse = finite(lse)
        return (torch.exp(-lse) * grad if self.safe else lse), grad

    def __call__(self, scores: Tensor, rows: slice, columns: slice) -> Tensor:
        """Return the derivative for a tile of scores, which may be overwritten."""
        if self.safe:
            return self.of_weights(scores.exp_(), rows, columns)
        lse, grad = self.row
        spare = self.scratch.shaped(*scores.shape)
        pulled = torch.sub(scores, lse[rows, None], out=spare).exp_().mul_(grad[rows, None])
        if self.column is not None:
            lse, grad = self.column
            pulled += scores.sub_(lse[columns]).exp_().mul_(grad[columns])
        return pulled

    def of_weights(self, weights: Tensor, rows: slice, columns: slice) -> Tensor:
        """Return the derivative for a tile of safe scores, given the weights e^s."""
        factor = self.row[0][rows, None]
        spare = self.scratch.shaped(*weights.shape)
        if self.column is not None:
            factor = torch.add(factor, self.column[0][columns], out=spare)
        return torch.mul(weights, factor, out=spare)


def pulled_tiles(
    query: Tensor, keys: Tensor, mask: Mask, pull: Pull, kept: Tensor | None
) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """Yield ∂loss/∂score of each tile in the form of `tiles`, from the `kept` weights or from tiles computed again."""
    if kept is not None:
        rows, columns = slice(0, len(query)), slice(0, len(keys))
        yield rows, columns, keys, pull.of_weights(kept, rows, columns)
        return
    remade = tiles_above_diagonal(query, mask) if keys is query else tiles(query, keys, mask)
    for rows, columns, chunk, scores in remade:
        yield rows, columns, chunk, pull(scores, rows, columns)


def keep(weights: Tensor | None, query: Tensor, keys: Tensor, safe: bool) -> Tensor | None:
    """Return the weights e^s of the last tile if it is the only one and backward needs nothing else, or None."""
    alone = weights is not None and weights.shape == (len(query), len(keys))
    return weights if safe and alone else None


def add_pulled(
    pulled_tiles: Iterable[tuple[slice, slice, Tensor, Tensor]], query: Tensor, d_query: Tensor, d_keys: Tensor | None
) -> None:
    """Add the contribution of each tile's ∂loss/∂score to the gradients for query and keys."""
    with autocast_off(query.device.type):
        for rows, columns, chunk, pulled in pulled_tiles:
            add_product(d_query[rows], pulled, chunk)
            if d_keys is not None:
                add_product(d_keys[columns], pulled.T, query[rows])
