"""Sums over an (n, k) score matrix that is never held.

Every loss that looks a query up among many keys needs `query @ keys.T`, a function of each
score, and sums over rows (or over rows and columns). Here that matrix exists one tile at a
time: a tile is made by one product, hidden candidates become -inf, it is summed, and the
next tile takes its place. Memory grows with n + k; the results are exact.

    log_sum_exp          each row's log Σ e^score; keys may carry gradient
    log_sum_exp_lookup   the same for keys without gradient: loss and gradient in one pass
    log_sum_exp_both     each row's and each column's, from the same tiles
    log_sum_exp_within   rows among themselves: the tiles above the diagonal are enough
    log_sum_exp_hardest  only the highest scores of each row count
    softplus_sum         each row's Σ log(1 + e^score)

Queries come divided by the temperature (`similarity.prepare`); gradients for temperature,
similarity and bias are ordinary autograd outside. The tiling follows online softmax
(Milakov and Gimelshein, 2018) and its recomputing backward (Rabe and Staats, 2021; Dao et
al., 2022).
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import softplus

from likewise.losses.masks import Mask, steps

# Below this many scores the whole matrix is cheaper than the bookkeeping of tiles.
SMALL = 2**18

# Scores within ±40 can be exponentiated as they are: e^±40, summed over a billion keys and
# divided again, stays far inside float32. So a cosine at temperature 0.025 or above needs no
# running maximum.
SAFE_SCORE = 40.0

KeyRows = Callable[[Tensor], Tensor]


def is_small(n: int, k: int) -> bool:
    return n * k <= SMALL


def log_sum_exp(query: Tensor, keys: Tensor, mask: Mask, largest: float | None) -> Tensor:
    """log Σ_j e^{⟨query_i, key_j⟩} over the candidates of each row, (n,); -inf where none is left.

    `largest` is the largest score that may come, or None where that is not known.
    """
    (rows,) = _Apart.apply(query, keys, mask, _is_safe(largest), False)  # type: ignore[no-untyped-call]
    return rows  # type: ignore[no-any-return]


def log_sum_exp_lookup(query: Tensor, keys: Tensor, key_rows: KeyRows, mask: Mask, largest: float | None) -> Tensor:
    """`log_sum_exp` for keys without gradient, each tile of which goes through `key_rows` first.

    The gradient for a query is an attention read over the keys, Σ_j P_ij key_j: it is summed in
    the same pass as the loss, so that backward has nothing left to do.
    """
    reads = query.requires_grad and torch.is_grad_enabled()
    lse: Tensor = _Lookup.apply(query, keys.detach(), key_rows, mask, _is_safe(largest), reads)  # type: ignore[no-untyped-call]
    return lse


def log_sum_exp_both(query: Tensor, keys: Tensor, mask: Mask, largest: float | None) -> tuple[Tensor, Tensor]:
    """`log_sum_exp` of the rows, (n,), and of the columns, (k,)."""
    rows, columns = _Apart.apply(query, keys, mask, _is_safe(largest), True)  # type: ignore[no-untyped-call]
    return rows, columns


def log_sum_exp_within(rows: Tensor, mask: Mask, largest: float | None) -> Tensor:
    """`log_sum_exp` of rows among themselves, scores ⟨row_i, row_j⟩; the mask must be symmetric."""
    lse: Tensor = _Within.apply(rows, mask, _is_safe(largest))  # type: ignore[no-untyped-call]
    return lse


def log_sum_exp_hardest(query: Tensor, keys: Tensor, hardest: int, mask: Mask) -> Tensor:
    """`log_sum_exp` over the `hardest` highest scores of each row, (n,)."""
    lse: Tensor = _Hardest.apply(query, keys, hardest, mask)  # type: ignore[no-untyped-call]
    return lse


def softplus_sum(query: Tensor, keys: Tensor, mask: Mask) -> Tensor:
    """Σ_j log(1 + e^{⟨query_i, key_j⟩}) over the candidates of each row, (n,)."""
    total: Tensor = _SoftplusSum.apply(query, keys, mask)  # type: ignore[no-untyped-call]
    return total


# ---------------------------------------------------------------------------- tiles


def _is_safe(largest: float | None) -> bool:
    return largest is not None and largest <= SAFE_SCORE


def _side(device: torch.device) -> int:
    """Side of a square tile: about what the second-level caches hold, or what keeps an accelerator busy."""
    area = min(2**19 * torch.get_num_threads(), 2**23) if device.type == "cpu" else 2**23
    return int(area**0.5) // 64 * 64


def _tile_shape(n: int, k: int, device: torch.device) -> tuple[int, int]:
    """Rows and columns of a tile twice as wide as high, wider where there are few rows."""
    side = _side(device)
    height = min(n, side)
    return height, max(1, min(k, 2 * side * side // height))


class _Scratch:
    """Memory that tiles of different shapes take turns in: fresh memory would cost as much as a pass over it."""

    def __init__(self, like: Tensor) -> None:
        self.memory = like.new_empty(0)

    def shaped(self, *shape: int) -> Tensor:
        """An uninitialised tensor of this shape, valid until the next call."""
        size = math.prod(shape)
        if self.memory.numel() < size:
            self.memory = self.memory.new_empty(size)
        return self.memory[:size].view(shape)


def _slabs(rows: Tensor) -> int:
    """Into how many products, run side by side, one product with a narrow (m, d) result is cut."""
    return torch.get_num_threads() if rows.device.type == "cpu" and rows.shape[1] < 256 else 1


def _tiles(query: Tensor, keys: Tensor, mask: Mask) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """Each tile of query @ keys.T: its rows, its columns, its keys and its masked scores.

    All tiles share their memory: one is gone once the next is asked for.
    """
    height, width = _tile_shape(len(query), len(keys), query.device)
    scratch = _Scratch(query)
    for columns in steps(len(keys), width):
        chunk = keys[columns]
        for rows in steps(len(query), height):
            yield rows, columns, chunk, _scores(scratch, query[rows], chunk, mask, rows, columns)


def _tiles_above_diagonal(rows: Tensor, mask: Mask) -> Iterator[tuple[slice, slice, Tensor, Tensor]]:
    """The tiles of rows @ rows.T on and above the diagonal, as `_tiles` gives them."""
    height = min(len(rows), _side(rows.device))
    scratch = _Scratch(rows)
    for columns in steps(len(rows), height):
        for above in steps(columns.stop, height):
            scores = _scores(scratch, rows[above], rows[columns], mask, above, columns)
            yield above, columns, rows[columns], scores


def _scores(scratch: _Scratch, query: Tensor, keys: Tensor, mask: Mask, rows: slice, columns: slice) -> Tensor:
    scores = torch.mm(query, keys.T, out=scratch.shaped(len(query), len(keys)))
    mask.hide(scores, rows, columns)
    return scores


def _add_product(total: Tensor, weights: Tensor, rows: Tensor) -> None:
    """total (m, d) += weights (m, c) @ rows (c, d).

    A slab of rows to each thread: a product this narrow is otherwise split less well (up to a
    quarter slower for d = 128).
    """
    slabs = _slabs(total)
    if slabs > 1 and len(total) % slabs == 0:
        several = rows.expand(slabs, *rows.shape)
        total.view(slabs, -1, total.shape[1]).baddbmm_(weights.view(slabs, -1, weights.shape[1]), several)
    else:
        total.addmm_(weights, rows)


# ------------------------------------------------------- log Σ e^score, tile after tile


class _RunningLogSumExp:
    """log Σ e^score of each row. Unless scores are safe, sums are relative to the highest one so far."""

    def __init__(self, length: int, like: Tensor, safe: bool) -> None:
        self.total = like.new_zeros(length)
        self.highest = None if safe else like.new_full((length,), -torch.inf)

    def add(self, rows: slice, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        """Add a tile (r, c). Gives its weights, in its place, and what earlier sums were multiplied by."""
        if self.highest is None:
            weights = scores.exp_()
            self.total[rows].add_(weights.sum(dim=1))
            return weights, None
        before = self.highest[rows]
        highest = torch.maximum(before, scores.amax(dim=1))
        shift = _finite(highest)
        rescale = (before - shift).exp()
        weights = scores.sub_(shift[:, None]).exp_()
        self.total[rows].mul_(rescale).add_(weights.sum(dim=1))
        self.highest[rows] = highest
        return weights, rescale

    def result(self) -> Tensor:
        return self.total.log() if self.highest is None else self.highest + self.total.log()


def _finite(lse: Tensor) -> Tensor:
    """A row without candidates has log-sum -inf; relative to 0 its weights e^{-inf} are 0, not NaN."""
    return lse.masked_fill(lse == -torch.inf, 0)


def _add_tile(
    scores: Tensor, rows: slice, columns: slice, row_sums: _RunningLogSumExp, column_sums: _RunningLogSumExp | None
) -> None:
    """Add one tile to the sums of its rows and, where there are any, of its columns."""
    if column_sums is None:
        row_sums.add(rows, scores)
    elif row_sums.highest is None:  # one exponential serves both
        scores.exp_()
        row_sums.total[rows].add_(scores.sum(dim=1))
        column_sums.total[columns].add_(scores.sum(dim=0))
    else:
        row_sums.add(rows, scores.clone())
        column_sums.add(columns, scores.T)


class _Pull:
    """∂loss/∂score of any tile, from the log-sums of rows (and columns) and their gradients.

    ∂/∂s_ij = row_grad_i e^{s_ij − row_lse_i} + column_grad_j e^{s_ij − column_lse_j}
    """

    def __init__(self, row: tuple[Tensor, Tensor], column: tuple[Tensor, Tensor] | None, safe: bool) -> None:
        self.safe = safe
        self.sides = [(_finite(lse), grad) for lse, grad in ([row] if column is None else [row, column])]
        # e^{s − lse} = e^s e^{−lse}: where e^s is safe, the second factor joins the gradient.
        self.factors = [(-lse).exp() * grad for lse, grad in self.sides] if safe else []
        self.scratch = _Scratch(row[0])

    def __call__(self, scores: Tensor, rows: slice, columns: slice) -> Tensor:
        spare = self.scratch.shaped(*scores.shape)
        if self.safe:
            factor = self.factors[0][rows, None]
            if len(self.factors) == 2:
                factor = torch.add(factor, self.factors[1][columns], out=spare)
            return scores.exp_().mul_(factor)
        lse, grad = self.sides[0]
        weights = torch.sub(scores, lse[rows, None], out=spare).exp_().mul_(grad[rows, None])
        if len(self.sides) == 2:
            lse, grad = self.sides[1]
            weights += scores.sub_(lse[columns]).exp_().mul_(grad[columns])
        return weights


class _Apart(Function):
    """Log-sums over rows, and over columns where asked, of query @ keys.T."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, mask: Mask, safe: bool, with_columns: bool
    ) -> tuple[Tensor, ...]:
        row_sums = _RunningLogSumExp(len(query), query, safe)
        column_sums = _RunningLogSumExp(len(keys), keys, safe) if with_columns else None
        for rows, columns, _, scores in _tiles(query, keys, mask):
            _add_tile(scores, rows, columns, row_sums, column_sums)
        results = [sums.result() for sums in (row_sums, column_sums) if sums is not None]
        ctx.save_for_backward(query, keys, *results)
        ctx.mask, ctx.safe = mask, safe
        return tuple(results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, *results = ctx.saved_tensors
        row, *column = zip(results, grads, strict=True)
        pull = _Pull(row, column[0] if column else None, ctx.safe)
        with torch.autocast(query.device.type, enabled=False):
            return *_pull_back(query, keys, ctx.mask, pull, ctx.needs_input_grad), None, None, None


def _pull_back(
    query: Tensor, keys: Tensor, mask: Mask, pull: Callable[[Tensor, slice, slice], Tensor], needed: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients for query and keys, where needed, from ∂loss/∂score of each tile, made once more."""
    d_query = torch.zeros_like(query) if needed[0] else None
    d_keys = torch.zeros_like(keys) if needed[1] else None
    for rows, columns, chunk, scores in _tiles(query, keys, mask):
        weights = pull(scores, rows, columns)
        if d_query is not None:
            _add_product(d_query[rows], weights, chunk)
        if d_keys is not None:
            _add_product(d_keys[columns], weights.T, query[rows])
    return d_query, d_keys


class _Within(Function):
    """Log-sums of rows among themselves. A tile above the diagonal is also its mirror image below."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, mask: Mask, safe: bool) -> Tensor:
        sums = _RunningLogSumExp(len(rows), rows, safe)
        for above, columns, _, scores in _tiles_above_diagonal(rows, mask):
            _add_tile(scores, above, columns, sums, None if above == columns else sums)
        lse = sums.result()
        ctx.save_for_backward(rows, lse)
        ctx.mask, ctx.safe = mask, safe
        return lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, lse = ctx.saved_tensors
        pull = _Pull((lse, grad), (lse, grad), ctx.safe)
        d_rows = torch.zeros_like(rows)
        with torch.autocast(rows.device.type, enabled=False):
            for above, columns, chunk, scores in _tiles_above_diagonal(rows, ctx.mask):
                weights = pull(scores, above, columns)
                _add_product(d_rows[above], weights, chunk)
                if above != columns:
                    _add_product(d_rows[columns], weights.T, rows[above])
        return d_rows, None, None


class _Lookup(Function):
    """Log-sums over rows for keys without gradient, and the read Σ_j P_ij key_j that is their gradient."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, key_rows: KeyRows, mask: Mask, safe: bool, reads: bool
    ) -> Tensor:
        lse, read = query.new_empty(len(query)), torch.empty_like(query) if reads else None
        height, width = _tile_shape(len(query), len(keys), query.device)
        for rows in steps(len(query), height):
            block = _LookupBlock(query[rows], safe, _slabs(query))
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
    """A block of queries on its way through the keys.

    A chunk of keys is cut into slabs, one a thread, that are scored and read apart: each core works
    on its own keys, and the partial sums of all slabs, (slabs · r) rows of them, meet at the end.
    """

    def __init__(self, query: Tensor, safe: bool, slabs: int) -> None:
        self.query, self.slabs = query, slabs
        self.sums = _RunningLogSumExp(slabs * len(query), query, safe)
        self.total_read = query.new_zeros(slabs, *query.shape)
        self.scratch = _Scratch(query)

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
        """Σ_j P_ij key_j: what each slab read, weighed by its share in the sum."""
        lse = self._lse_of_slabs()
        share = (lse - _finite(lse.logsumexp(dim=0))).exp()
        total = self.sums.total.view(self.slabs, -1)
        return (self.total_read * (share / total.masked_fill(total == 0, 1))[..., None]).sum(dim=0)

    def _lse_of_slabs(self) -> Tensor:
        return self.sums.result().view(self.slabs, -1)  # (slabs, r)


class _Hardest(Function):
    """Log-sum over the highest scores of each row: a running top k, whose places backward reads again."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, hardest: int, mask: Mask) -> Tensor:
        shape = len(query), min(hardest, len(keys))
        highest = query.new_full(shape, -torch.inf)
        places = torch.zeros(shape, dtype=torch.int64, device=query.device)  # columns of the highest scores
        for rows, columns, _, scores in _tiles(query, keys, mask):
            tops, columns_of_tops = scores.topk(min(shape[1], scores.shape[1]), dim=1)
            highest[rows], order = torch.cat([highest[rows], tops], dim=1).topk(shape[1], dim=1)
            places[rows] = torch.cat([places[rows], columns_of_tops + columns.start], dim=1).gather(1, order)
        lse = highest.logsumexp(dim=1)
        ctx.save_for_backward(query, keys, places, (highest - _finite(lse)[:, None]).exp_())
        return lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, places, weights = ctx.saved_tensors
        weights = weights * grad[:, None]
        d_query, d_keys = torch.zeros_like(query), torch.zeros_like(keys)
        for place, weight in zip(places.T, weights.T, strict=True):  # one of the highest of every row, (n,)
            d_query.addcmul_(weight[:, None], keys[place])
            d_keys.index_add_(0, place, weight[:, None] * query)
        return d_query, d_keys, None, None


class _SoftplusSum(Function):
    """Row sums of log(1 + e^score), whose derivative is the logistic function of each score."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, mask: Mask) -> Tensor:
        total = query.new_zeros(len(query))
        for rows, _, _, scores in _tiles(query, keys, mask):
            total[rows].add_(exact_softplus(scores).sum(dim=1))
        ctx.save_for_backward(query, keys)
        ctx.mask = mask
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, keys = ctx.saved_tensors
        with torch.autocast(query.device.type, enabled=False):
            pulled = _pull_back(
                query,
                keys,
                ctx.mask,
                lambda scores, rows, columns: scores.sigmoid_().mul_(grad[rows, None]),
                ctx.needs_input_grad,
            )
        return *pulled, None


def exact_softplus(x: Tensor) -> Tensor:
    """log(1 + e^x), not replaced by x before the two are equal in float64 (e^80 is a float32)."""
    return softplus(x, threshold=80)
