"""The training step of every method: encode pairs, look up candidates, compute the loss, update the weights.

The learner owns everything that is trained or kept between steps. It knows nothing of files, time or output.
"""

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from likewise import ranks
from likewise.data.tokens import joined
from likewise.dictionaries import MomentumEncoder, consistency
from likewise.dictionaries.catalog import DICTIONARIES, KEYS
from likewise.encoders.batch_norm import has_batch_norm
from likewise.encoders.features import as_dtype, place_of
from likewise.losses.catalog import LOSSES, build_loss
from likewise.losses.look_up import LookUp
from likewise.modalities import MODALITIES
from likewise.pairs.batch import Batch
from likewise.pairs.catalog import build_tower
from likewise.pairs.towers import Tower
from likewise.randomness import generator, number
from likewise.recipe import Recipe, RecipeError
from likewise.training import optimizers, schedule
from likewise.training.batches import Batches
from likewise.views import Augmentation, Draws
from likewise.views.augmentation import together

ALL = slice(None)
Side = Callable[[], Tensor]  # returns the views of one side of a batch
Inputs = Callable[[slice], tuple[Tensor, ...]]  # returns the inputs of a tower for a part of the batch


class Model(nn.Module):
    """The module that is distributed over ranks: the tower, and the loss, which may have parameters."""

    def __init__(self, tower: Tower, loss: nn.Module) -> None:
        super().__init__()
        self.tower, self.loss = tower, loss

    def forward(self, inputs: Inputs, parts: Sequence[slice]) -> list[Any]:
        """Return the tower's output for each part of a batch."""
        return in_parts(self.tower, inputs, parts)


def check_parts(augmentation: Augmentation, recipe: Recipe, size: int) -> None:
    """Refuse parts of a batch that would separate rows whose views depend on each other."""
    rows, count = together(augmentation), ranks.count()
    what = f"because preset {recipe.pairs.preset} mixes {rows} items with each other"
    if recipe.training.chunk % rows:
        raise RecipeError(f"training.chunk must be a multiple of {rows}, {what}, got {recipe.training.chunk}")
    if count > 1 and size // count % rows:
        multiple = f"{rows} for each of {count} ranks"
        raise RecipeError(f"training.batch_size must be a multiple of {multiple}, {what}, got {size}")


def in_parts(tower: nn.Module, inputs: Inputs, parts: Sequence[slice]) -> list[Any]:
    """Return the tower's output for each part of a batch, all in one autograd graph.

    If there are several parts, only their embeddings are kept, so that memory is that of one part. The backward pass
    computes each part a second time, with the same dropout: gradient caching (Gao et al., 2021).
    """

    dtype = torch.get_default_dtype()
    # checkpoint() restores the RNG state only of devices it sees among its arguments, so pass it a tensor on the
    # model's device.
    where = torch.empty(0, device=place_of(tower).device)

    def of(part: slice, where: Tensor) -> Any:
        with default_dtype(dtype):  # in backward too
            return tower(*inputs(part))

    if len(parts) == 1:
        return [of(parts[0], where)]
    return [checkpoint(of, part, where, use_reentrant=False) for part in parts]


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@dataclass(frozen=True)
class Taken:
    """The result of a step: the loss, a scalar still on the device, and the look-ups."""

    loss: Tensor
    look_ups: list[LookUp]  # one, or for pairs future one for each step ahead


class Learner:
    """One run's model, momentum copy, dictionary and optimizer, and the training step that updates them."""

    def __init__(
        self, recipe: Recipe, about: Mapping[str, Any], batches: Batches, labels: Tensor | None, fabric: Fabric
    ) -> None:
        self.recipe, self.batches, self.labels, self.fabric = recipe, batches, labels, fabric
        self.pairs = batches.pairs
        self.loss_kind, self.key_source = LOSSES[recipe.loss.kind], KEYS[recipe.keys.by]
        modality = MODALITIES[about["modality"]]
        self.augmentation = modality.augmentation(recipe, about)
        check_parts(self.augmentation, recipe, batches.size)
        self.early_augmentation = modality.early_augmentation(recipe, about)
        total = recipe.training.steps or recipe.training.epochs * batches.per_epoch
        # From this step on, views are those of `augmentation`.
        self.grows_at = total // 2 if self.early_augmentation is not None else 0
        tower = build_tower(recipe, about)
        if recipe.training.chunk and has_batch_norm(tower):
            raise RecipeError(
                "training.chunk embeds a batch in parts, which changes the statistics of batch norm: "
                f"choose an encoder and a head without batch norm, such as vit_tiny and mlp, got {recipe.encoder.name} "
                f"and {recipe.encoder.head}"
            )
        if fabric.world_size > 1 and self.key_source.with_gradient and fabric.device.type == "cuda":
            tower = nn.SyncBatchNorm.convert_sync_batchnorm(tower)  # type: ignore[no-untyped-call]  # one batch, one set of statistics
        model = Model(tower, build_loss(recipe.loss, len(batches.train)))
        self.channels_last = modality.channels_last and fabric.device.type == "cuda"
        if self.channels_last:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if recipe.training.compile:
            tower.compile()
        options = recipe.optimizer
        optimizer = optimizers.build(
            options.name, model, lr=options.lr, momentum=options.momentum, weight_decay=options.weight_decay
        )
        self.model, self.optimizer = fabric.setup(model, optimizer)
        self.tower, self.loss = tower, model.loss
        self.copy = MomentumEncoder(tower.keys, recipe.keys.momentum) if self.key_source.by_copy else None
        self.dtype = torch.float64 if recipe.training.precision == "64-true" else torch.float32
        self.dictionary = self._build_dictionary().to(fabric.device, self.dtype)
        # Shuffling the keys makes a difference only with batch norm.
        self.shuffles = self.copy is not None and has_batch_norm(tower)
        self.both = recipe.pairs.symmetric or self.loss_kind.asks_both_views
        self._draws = lru_cache(maxsize=2)(self._draw)

    def step(self, batch: Batch, total: int) -> Taken:
        """Take one step of `total`."""
        options, step = self.recipe.optimizer, batch.step
        factor = schedule.factor(step, total, schedule=options.schedule, warmup=options.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = options.lr * factor
        query, key, ids = self.encode(batch)
        found = self.dictionary.lookup(key, ids, generator(self.recipe.seed, "noise", step))
        look_ups = self.look_ups(query, found, ids, batch)
        score = self.loss_kind.score
        loss = torch.stack([score(self.loss, look_up) * look_up.weight for look_up in look_ups]).mean()
        self.optimizer.zero_grad()
        self.fabric.backward(loss * self.recipe.loss.weight)
        if options.clip:
            self.fabric.clip_gradients(self.model, self.optimizer, max_norm=options.clip, error_if_nonfinite=False)
        self.optimizer.step()
        if self.copy is not None:
            keys = self.recipe.keys
            self.copy.follow(schedule.momentum_at(step, total, keys.momentum, keys.schedule))
        # The candidates are a view of the dictionary's memory, which `update` overwrites. Copy their ids, which are
        # still needed for logging.
        kept = [
            replace(each, found=each.found._replace(negative_ids=each.found.negative_ids.clone())) for each in look_ups
        ]
        self.dictionary.update(key.detach(), ids)
        return Taken(loss.detach(), kept)

    def look_ups(self, query: Tensor, found: Any, ids: Tensor, batch: Batch) -> list[LookUp]:
        """Return the look-ups that the loss scores: one for the batch, or one for each step ahead."""
        labels = None
        if self.loss_kind.needs_labels and self.labels is not None:
            labels = self.labels[batch.items].to(query.device)
        size, seed = self.batches.size, self.recipe.seed
        return self.pairs.look_ups(query, found, ids, labels, batch, size=size, seed=seed)

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys (n, d) and their ids. If both views are queries, the views of an item are neighbours."""
        torch.manual_seed(number(self.recipe.seed, f"dropout of rank {ranks.index()}", batch.step))
        first, second = self.sides(batch)
        if self.key_source.from_slots:
            query, key = map(self.pairs.queries, self.tower.queries_and_keys(self.embed(first())))
            return query, key.detach(), batch.ids.to(query.device)
        queries: tuple[Tensor, Tensor | None]
        if self.copy is None:
            queries, keys = self.embed_pairs(batch, first, second)
            key = neighbours(keys[1], keys[0]) if self.both else keys[1]
        else:
            views = joined([first(), second()]) if self.both else first()
            output = self.tower.queries_and_keys(self.embed(views))[0]
            queries = self.pairs.sides(output) if self.both else (self.pairs.queries(output), None)
            key = self.copied_keys(batch.step, first, second)
        if not self.both:
            return self.pairs.rows(queries[0], key, batch, first, self.tower)
        one, other = queries
        assert other is not None
        return neighbours(one, other), key, batch.ids.to(key.device).repeat_interleave(2, dim=0)

    def copied_keys(self, step: int, first: Side, second: Side) -> Tensor:
        """Encode the keys of a batch with the momentum copy, in the order of the queries."""
        if not self.both:
            return self.encode_keys(self.pairs.key_view(first, second), step)
        one, other = self.encode_keys(joined([first(), second()]), step).chunk(2)
        return neighbours(other, one)

    def sides(self, batch: Batch) -> tuple[Side, Side]:
        """Return two functions that return the views of each side of a batch, and compute them only once."""
        first, second = (functools.cache(partial(self.views, batch, side)) for side in ("first", "second"))
        return first, second

    def embed_pairs(
        self, batch: Batch, first: Side, second: Side
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Embed both sides of each pair in one pass, or in one pass for each chunk of the batch.

        Return both sides as queries, (n, d) each, and both sides as keys.
        """
        parts = self.parts(batch)
        if len(parts) == 1:
            outputs = self.through_model(lambda part: self.pairs.inputs(first, second), parts)
        else:  # views are computed chunk by chunk, and again in the backward pass
            outputs = self.through_model(partial(self.inputs_of, batch), parts)
        queries, keys = zip(*map(self.tower.queries_and_keys, outputs), strict=True)
        return self._joined(queries), self._joined(keys)

    def _joined(self, outputs: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """Return both sides of all parts of a batch."""
        one, other = zip(*map(self.pairs.sides, outputs), strict=True)
        return torch.cat(one), torch.cat(other)

    def inputs_of(self, batch: Batch, part: slice) -> tuple[Tensor, ...]:
        """Return the inputs with which the tower embeds both sides of a part of the batch."""
        return self.pairs.inputs(lambda: self.views(batch, "first", part), lambda: self.views(batch, "second", part))

    def parts(self, batch: Batch) -> list[slice]:
        """Return the slices of the batch that are embedded at once: one of all rows, or one for each chunk."""
        rows = len(batch.items)
        size = self.recipe.training.chunk or rows
        return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]

    def embed(self, views: Tensor) -> Any:
        """Pass views through the model, all at once."""
        return self.through_model(lambda part: (views,), [ALL])[0]

    def through_model(self, inputs: Inputs, parts: Sequence[slice]) -> list[Any]:
        """Return the embeddings of each part, in float32, or in float64 with precision 64-true."""
        with default_dtype(self.dtype):  # Fabric converts outputs to the default dtype
            return self.model(inputs, parts)  # type: ignore[no-any-return]

    def encode_keys(self, views: Tensor, step: int) -> Tensor:
        """Encode keys with the momentum copy.

        The batch is shuffled over all ranks, so that a query and its positive do not share their batch statistics. The
        keys are returned in the original order.
        """
        assert self.copy is not None
        # Keys have their own seed, so that they can be encoded again without the queries.
        torch.manual_seed(number(self.recipe.seed, f"dropout of the keys of rank {ranks.index()}", step))
        with self.fabric.autocast():
            if not self.shuffles:
                keys: Tensor = self.copy(views)
                return keys.to(self.dtype)
            n, views = len(views), ranks.as_wide(views)
            order = torch.randperm(n * ranks.count(), generator=generator(self.recipe.seed, "shuffle", step))
            order, back = order.to(views.device), order.argsort().to(views.device)
            mine = slice(ranks.index() * n, (ranks.index() + 1) * n)
            shuffled = self.copy(ranks.gather(views)[order[mine]])
            return ranks.gather(shuffled)[back[mine]].to(self.dtype)

    def views(self, batch: Batch, side: str, part: slice = ALL) -> Tensor:
        """Return the views of one side of a batch, or of a part of it.

        Augmentations are drawn for the whole batch over all ranks; this rank applies those of its rows.
        """
        data = (batch.data if side == "first" else batch.partner_data)[part]
        data = data.to(self.fabric.device, non_blocking=True)
        if side == "second" and (as_it_is := self.pairs.second_view(data)) is not None:
            return as_it_is
        augmentation = self.augmentation_at(batch.step)
        views = augmentation.apply(data, self._draws(side, batch.step).rows(batch.rows).rows(part))
        if self.channels_last:
            views = views.contiguous(memory_format=torch.channels_last)
        return as_dtype(views, self.dtype)

    def _draw(self, side: str, step: int) -> Draws:
        rng = generator(self.recipe.seed, f"{side} view", step)
        return self.augmentation_at(step).draw(self.batches.size, rng)

    def augmentation_at(self, step: int) -> Augmentation:
        """Return the augmentations of a step: those of the early steps may make smaller views."""
        early = self.early_augmentation
        return early if early is not None and step < self.grows_at else self.augmentation

    def meters(self) -> dict[str, float]:
        """Return the size, fill and age of the dictionary."""
        return self.dictionary.meters()  # type: ignore[no-any-return]

    def consistency(self) -> float:
        """Return the mean cosine of stored keys with the keys that the current encoder gives the same views.

        It is 1 for a dictionary that stores nothing, and NaN for an empty one.
        """
        if not DICTIONARIES[self.recipe.dictionary.kind].stores:
            return 1.0
        with torch.no_grad(), self.unchanged_buffers():
            return consistency(
                self.dictionary,
                lambda step: ranks.gather(self.keys_today(self.batches.at(step))),
            )

    def keys_today(self, batch: Batch) -> Tensor:
        """Encode the keys of a batch again; with a momentum copy, without the queries."""
        if self.copy is None:
            return self.encode(batch)[1]
        return self.copied_keys(batch.step, *self.sides(batch)).flatten(0, -2)

    def rehearse(self, batch: Batch) -> list[str]:
        """Run the forward and backward pass of one step, or of its first chunk, on a copy of the tower.

        Wait until the device is done, and return the names of the parameters that got no gradient.
        """
        tower = copy.deepcopy(self.tower)
        sees_both = not self.key_source.from_slots and (self.both or self.copy is None)

        def inputs(part: slice) -> tuple[Tensor, ...]:
            return self.inputs_of(batch, part) if sees_both else (self.views(batch, "first", part),)

        with self.fabric.autocast():
            if self.copy is not None and self.pairs.two_views:
                with torch.no_grad():
                    views = inputs(ALL) if self.both else (self.views(batch, "second"),)
                    tower(*views)
            rows = in_parts(tower, inputs, self.parts(batch)[:1])
            outputs = [part for output in rows for part in (output if isinstance(output, tuple) else (output,))]
            energy = sum(part.float().square().sum() for part in outputs)
        energy.backward()
        energy.item()
        return [name for name, p in tower.named_parameters() if p.requires_grad and p.grad is None]

    @torch.no_grad()
    def fill_dictionary(self, batch: Batch) -> None:
        """Fill the dictionary with copies of a batch's keys, so that look-ups take as long as later in the run."""
        kind = DICTIONARIES[self.recipe.dictionary.kind]
        if not kind.stores or kind.one_slot_an_item:
            return
        _, key, ids = self.encode(batch)
        while self.meters()["fill"] < 1:
            self.dictionary.update(key, ids)

    @contextmanager
    def unchanged_buffers(self) -> Iterator[None]:
        """Restore the running statistics of batch norm after the block."""
        modules = [self.tower, *([self.copy] if self.copy is not None else [])]
        buffers = [buffer for module in modules for buffer in module.buffers()]
        kept = [buffer.clone() for buffer in buffers]
        try:
            yield
        finally:
            for buffer, value in zip(buffers, kept, strict=True):
                buffer.copy_(value)

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint stores."""
        state = {
            "tower": self.tower.state_dict(),
            "loss": self.loss.state_dict(),
            "dictionary": self.dictionary.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),  # of the gradient scaler, with 16-mixed
        }
        return state if self.copy is None else state | {"copy": self.copy.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.tower.load_state_dict(state["tower"])
        self.loss.load_state_dict(state["loss"])
        self.dictionary.load_state_dict(state["dictionary"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        if self.copy is not None:
            self.copy.load_state_dict(state["copy"])

    def _build_dictionary(self) -> Any:
        options, dim = self.recipe.dictionary, self.tower.head.dim
        rng, items = generator(self.recipe.seed, "bank"), len(self.batches.train)
        kind = DICTIONARIES[options.kind]
        return kind.build(options, dim=dim, items=items, columns=self.pairs.columns, rng=rng)


def neighbours(one: Tensor, other: Tensor) -> Tensor:
    """Interleave two tensors row by row: one[0], other[0], one[1], other[1], …; (2n, d)."""
    return torch.stack([one, other], dim=1).flatten(0, 1)
