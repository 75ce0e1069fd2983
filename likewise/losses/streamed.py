"""Sums over an (n, k) score matrix that is never held in memory as a whole.

Every loss that looks a query up among many keys needs `query @ keys.T`, a function of each
score, and sums over rows (or over rows and columns). Here that matrix exists one tile at a
time: a tile is made by one product, masked candidates are set to -inf, the tile is added to
the sums, and the next tile overwrites it. Memory grows with n + k, and the results are exact.
If there is only one tile, it is saved for backward; otherwise backward computes the tiles again.

    log_sum_exp          log Σ e^score of each row; keys may carry gradient
    log_sum_exp_beside   the same, and the score of each row's own key, which is not in the sum
    log_sum_exp_lookup   the same for keys without gradient: loss and gradient in one pass
    log_sum_exp_both     of each row and of each column, from the same tiles, and the diagonal
    log_sum_exp_within   of rows among themselves: only the tiles above the diagonal are computed
    log_sum_exp_pairs    the same for two views of each item, and the partners' scores
    log_sum_exp_hardest  only the highest scores of each row count
    softplus_sum         Σ log(1 + e^score) of each row

Queries are already divided by the temperature (`similarity.prepare`). The gradients for
temperature, similarity and bias are left to autograd. The tiling follows online softmax
(Milakov and Gimelshein, 2018) and its recomputing backward (Rabe and Staats, 2021; Dao et
al., 2022).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from likewise.losses.inputs import autocast_off
from likewise.losses.masks import Mask, steps
from likewise.losses.running import Pull, RunningLogSumExp, add_both, add_pulled, finite, keep, pulled_tiles
from likewise.losses.tiles import Scratch, add_product, slabs_for, tile_shape, tiles, tiles_above_diagonal

# Below this many scores, the overhead of calling PyTorch operators dominates, so losses without ids
# and policy use `cross_entropy` of the whole matrix. If only rows are summed, the limit is higher.
SMALL, SMALL_ONE_WAY = 2**16, 2**18

# Scores within ±40 can be exponentiated as they are: e^±40, summed over a billion keys and
# divided again, stays well within float32. So a cosine at temperature 0.025 or above needs no
# running maximum.
SAFE_SCORE = 40.0

KeyRows = Callable[[Tensor], Tensor]


def log_sum_exp(query: Tensor, keys: Tensor, mask: Mask, bound: float | None) -> Tensor:
    """Return log Σ_j e^{⟨query_i, key_j⟩} over the candidates of each row, (n,); -inf for a row without candidates.

    `bound` is the largest possible |score|, or None if that is not known.
    """
    lse: Tensor = _Rows.apply(query, keys, mask, _is_safe(bound))  # type: ignore[no-untyped-call]
    return lse


def log_sum_exp_beside(
    query: Tensor, own: Tensor, keys: Tensor, mask: Mask, bound: float | None
) -> tuple[Tensor, Tensor]:
    """Return `log_sum_exp` of the rows, and their scores ⟨query_i, own_i⟩; (n,) each."""
    lse, scores = _Beside.apply(query, own, keys, mask, _is_safe(bound))  # type: ignore[no-untyped-call]
    return lse, scores


def log_sum_exp_lookup(query: Tensor, keys: Tensor, key_rows: KeyRows, mask: Mask, bound: float | None) -> Tensor:
    """Return `log_sum_exp` for keys without gradient; `key_rows` prepares the keys of each tile.

    The gradient for a query is an attention read over the keys, Σ_j P_ij key_j. It is summed in
    the same pass as the loss, so backward only scales it.
    """
    reads = query.requires_grad and torch.is_grad_enabled()
    lse: Tensor = _Lookup.apply(query, keys.detach(), key_rows, mask, _is_safe(bound), reads)  # type: ignore[no-untyped-call]
    return lse


def log_sum_exp_both(query: Tensor, keys: Tensor, mask: Mask, bound: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return `log_sum_exp` of the rows and of the columns, and the scores ⟨query_i, key_i⟩ of the pairs; (n,) each."""
    rows, columns, own = _Both.apply(query, keys, mask, _is_safe(bound))  # type: ignore[no-untyped-call]
    return rows, columns, own


def log_sum_exp_within(rows: Tensor, mask: Mask, bound: float | None) -> Tensor:
    """Return `log_sum_exp` of rows among themselves, with scores ⟨row_i, row_j⟩; the mask must be symmetric."""
    lse, _ = _Within.apply(rows, mask, _is_safe(bound), 0)  # type: ignore[no-untyped-call]
    return lse  # type: ignore[no-any-return]


def log_sum_exp_pairs(rows: Tensor, mask: Mask, bound: float | None) -> tuple[Tensor, Tensor]:
    """Return `log_sum_exp_within` of 2n rows, and the score of each row with its partner n rows away; (2n,) each."""
    lse, partner = _Within.apply(rows, mask, _is_safe(bound), len(rows) // 2)  # type: ignore[no-untyped-call]
    return lse, partner


def log_sum_exp_hardest(query: Tensor, keys: Tensor, hardest: int, mask: Mask) -> Tensor:
    """Return `log_sum_exp` over the `hardest` highest scores of each row, (n,)."""
    lse: Tensor = _Hardest.apply(query, keys, hardest, mask)  # type: ignore[no-untyped-call]
    return lse


def softplus_sum(query: Tensor, keys: Tensor, mask: Mask) -> Tensor:
    """Return Σ_j log(1 + e^{⟨query_i, key_j⟩}) over the candidates of each row, (n,)."""
    total: Tensor = _SoftplusSum.apply(query, keys, mask)  # type: ignore[no-untyped-call]
    return total


def _is_safe(bound: float | None) -> bool:
    return bound is not None and bound <= SAFE_SCORE


class _Rows(Function):
    """Log-sums over the rows of query @ keys.T."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, mask: Mask, safe: bool) -> Tensor:
        lse, *kept = _row_sums(query, keys, mask, safe)
        ctx.save_for_backward(query, keys, *kept)
        ctx.mask, ctx.safe = mask, safe
        return lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, lse, kept = ctx.saved_tensors
        d_query = torch.zeros_like(query)
        d_keys = torch.zeros_like(keys) if ctx.needs_input_grad[1] else None
        pull = Pull((lse, grad), None, ctx.safe or kept is not None)
        add_pulled(pulled_tiles(query, keys, ctx.mask, pull, kept), query, d_query, d_keys)
        return d_query, d_keys, None, None


class _Beside(Function):
    """`_Rows`, and the score of each row's own key. Backward writes its gradients first and adds those of the sums."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, own: Tensor, keys: Tensor, mask: Mask, safe: bool) -> tuple[Tensor, Tensor]:
        lse, *kept = _row_sums(query, keys, mask, safe)
        ctx.save_for_backward(query, own, keys, *kept)
        ctx.mask, ctx.safe = mask, safe
        return lse, (query * own).sum(dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, own_grad: Tensor) -> tuple[Tensor | None, ...]:
        query, own, keys, lse, kept = ctx.saved_tensors
        d_query = own * own_grad[:, None]
        d_own = query * own_grad[:, None] if ctx.needs_input_grad[1] else None
        d_keys = torch.zeros_like(keys) if ctx.needs_input_grad[2] else None
        pull = Pull((lse, grad), None, ctx.safe or kept is not None)
        add_pulled(pulled_tiles(query, keys, ctx.mask, pull, kept), query, d_query, d_keys)
        return d_query, d_own, d_keys, None, None


def _row_sums(query: Tensor, keys: Tensor, mask: Mask, safe: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the log-sums of rows, and what backward needs: log-sums, and the weights of the tile if there is only one.

    The saved weights are relative to the highest score of their row, and so are the log-sums saved with them.
    """
    sums, weights = RunningLogSumExp(len(query), query, safe), None
    for rows, _, _, scores in tiles(query, keys, mask):
        weights, _ = sums.add(rows, scores)
    lse, kept = sums.result(), keep(weights, query, keys, safe=True)
    return lse, lse if kept is None else sums.total.log(), kept


class _Both(Function):
    """Log-sums over rows and over columns of query @ keys.T, n = k, and its diagonal, the scores of the pairs.

    The diagonal is not in the sums. It is part of this function because backward can then write its
    gradients first and add those of the sums to them, which saves memory.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, mask: Mask, safe: bool) -> tuple[Tensor, Tensor, Tensor]:
        row_sums, column_sums = (RunningLogSumExp(len(query), query, safe) for _ in range(2))
        for rows, columns, _, scores in tiles(query, keys, mask):
            add_both(scores, rows, columns, row_sums, column_sums)
        row_lse, column_lse = row_sums.result(), column_sums.result()
        ctx.save_for_backward(query, keys, row_lse, column_lse, keep(scores, query, keys, safe))
        ctx.mask, ctx.safe = mask, safe
        return row_lse, column_lse, (query * keys).sum(dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, row_grad: Tensor, column_grad: Tensor, own_grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, row_lse, column_lse, kept = ctx.saved_tensors
        d_query = keys * own_grad[:, None]
        d_keys = query * own_grad[:, None] if ctx.needs_input_grad[1] else None
        pull = Pull((row_lse, row_grad), (column_lse, column_grad), ctx.safe)
        add_pulled(pulled_tiles(query, keys, ctx.mask, pull, kept), query, d_query, d_keys)
        return d_query, d_keys, None, None


class _Within(Function):
    """Log-sums of rows among themselves, and the score of each row with its partner, `away` rows apart.

    A tile above the diagonal serves also as its mirror image below.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, mask: Mask, safe: bool, away: int) -> tuple[Tensor, Tensor]:
        sums, weights = RunningLogSumExp(len(rows), rows, safe), None
        for above, columns, _, scores in tiles_above_diagonal(rows, mask):
            if above == columns:
                weights, _ = sums.add(above, scores)
            else:
                add_both(scores, above, columns, sums, sums)
        lse = sums.result()
        ctx.save_for_backward(rows, lse, keep(weights, rows, rows, safe))
        ctx.mask, ctx.safe, ctx.away = mask, safe, away
        partner = (rows[:away] * rows[away:]).sum(dim=1) if away else lse.new_empty(0)
        return lse, torch.cat([partner, partner])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, partner_grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, lse, kept = ctx.saved_tensors
        d_rows = torch.zeros_like(rows)
        if away := ctx.away:  # the score of two partners was returned for both of their rows
            both = (partner_grad[:away] + partner_grad[away:])[:, None]
            torch.mul(rows[away:], both, out=d_rows[:away])
            torch.mul(rows[:away], both, out=d_rows[away:])
        side = lse, grad
        pull = Pull(side, side, ctx.safe)
        with autocast_off(rows.device.type):
            for above, columns, chunk, pulled in pulled_tiles(rows, rows, ctx.mask, pull, kept):
                add_product(d_rows[above], pulled, chunk)
                if above != columns:
                    add_product(d_rows[columns], pulled.T, rows[above])
        return d_rows, None, None, None


class _Lookup(Function):
    """Log-sums over rows for keys without gradient, and their gradient, the attention read Σ_j P_ij key_j."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, key_rows: KeyRows, mask: Mask, safe: bool, reads: bool
    ) -> Tensor:
        lse, read = query.new_empty(len(query)), torch.empty_like(query) if reads else None
        height, width = tile_shape(len(query), len(keys), query.device)
        for rows in steps(len(query), height):
            block = _LookupBlock(query[rows], safe, slabs_for(query))
            for columns in steps(len(keys), width):
                block.add(key_rows(keys[columns]), mask, rows, columns, reads)
            lse[rows] = block.lse()
            if read is not None:
                read[rows] = block.read()
        ctx.save_for_backward(read)
        return lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (read,) = ctx.saved_tensors
        return grad[:, None] * read, None, None, None, None, None


class _LookupBlock:
    """The running sums of one block of queries over the chunks of keys.

    A chunk of keys is split into one slab per thread, and slabs are scored and read separately: each core
    works on its own keys. The partial sums of the slabs, (slabs · r) rows, are combined at the end.
    """

    def __init__(self, query: Tensor, safe: bool, slabs: int) -> None:
        self.query, self.slabs = query, slabs
        self.sums = RunningLogSumExp(slabs * len(query), query, safe)
        self.total_read = query.new_zeros(slabs, *query.shape)
        self.scratch = Scratch(query)

    def add(self, keys: Tensor, mask: Mask, rows: slice, columns: slice, reads: bool) -> None:
        slabs = self.slabs if len(keys) % self.slabs == 0 else 1
        keys = keys.view(slabs, -1, keys.shape[1])
        r, c = len(self.query), keys.shape[1]
        scores = torch.bmm(self.query.expand(slabs, -1, -1), keys.mT, out=self.scratch.shaped(slabs, r, c))
        for slab in range(slabs):
            start = columns.start + slab * c
            mask.hide(scores[slab], rows, slice(start, start + c))
        weights, rescale = self.sums.add(slice(0, slabs * r), scores.view(slabs * r, c))
        if reads:
            read = self.total_read[:slabs]
            if rescale is not None:
                read.mul_(rescale.view(slabs, r, 1))
            read.baddbmm_(weights.view(slabs, r, c), keys)

    def lse(self) -> Tensor:
        return self._lse_of_slabs().logsumexp(dim=0)

    def read(self) -> Tensor:
        """Return Σ_j P_ij key_j: the reads of the slabs, weighted by their shares in the sum."""
        lse = self._lse_of_slabs()
        share = (lse - finite(lse.logsumexp(dim=0))).exp()
        total = self.sums.total.view(self.slabs, -1)
        return (self.total_read * (share / total.masked_fill(total == 0, 1))[..., None]).sum(dim=0)

    def _lse_of_slabs(self) -> Tensor:
        return self.sums.result().view(self.slabs, -1)  # (slabs, r)


class _Hardest(Function):
    """Log-sum over the highest scores of each row, kept as a running top k whose columns are saved for backward."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, hardest: int, mask: Mask) -> Tensor:
        shape = len(query), min(hardest, len(keys))
        highest = query.new_full(shape, -torch.inf)
        places = torch.zeros(shape, dtype=torch.int64, device=query.device)  # columns of the highest scores
        for rows, columns, _, scores in tiles(query, keys, mask):
            tops, columns_of_tops = scores.topk(min(shape[1], scores.shape[1]), dim=1)
            highest[rows], order = torch.cat([highest[rows], tops], dim=1).topk(shape[1], dim=1)
            places[rows] = torch.cat([places[rows], columns_of_tops + columns.start], dim=1).gather(1, order)
        lse = highest.logsumexp(dim=1)
        ctx.save_for_backward(query, keys, places, (highest - finite(lse)[:, None]).exp_())
        return lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, places, weights = ctx.saved_tensors
        weights = weights * grad[:, None]
        d_query = torch.zeros_like(query)
        d_keys = torch.zeros_like(keys) if ctx.needs_input_grad[1] else None
        for place, weight in zip(places.T, weights.T, strict=True):  # one high score of every row at a time, (n,)
            d_query.addcmul_(weight[:, None], keys[place])
            if d_keys is not None:
                d_keys.index_add_(0, place, weight[:, None] * query)
        return d_query, d_keys, None, None


class _SoftplusSum(Function):
    """Row sums of log(1 + e^score), whose derivative is the logistic function of each score."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, mask: Mask) -> Tensor:
        total = query.new_zeros(len(query))
        for rows, _, _, scores in tiles(query, keys, mask):
            total[rows].add_(exact_softplus(scores).sum(dim=1))
        ctx.save_for_backward(query, keys)
        ctx.mask = mask
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys = ctx.saved_tensors
        d_query = torch.zeros_like(query)
        d_keys = torch.zeros_like(keys) if ctx.needs_input_grad[1] else None

        pulled = (
            (rows, columns, chunk, scores.sigmoid_().mul_(grad[rows, None]))
            for rows, columns, chunk, scores in tiles(query, keys, ctx.mask)
        )
        add_pulled(pulled, query, d_query, d_keys)
        return d_query, d_keys, None


def exact_softplus(x: Tensor) -> Tensor:
    """Return log(1 + e^x). PyTorch returns x above its threshold: 20 is too low for float64, and e^80 fits float32."""
    return softplus(x, threshold=80)
