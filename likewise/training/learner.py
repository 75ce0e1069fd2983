"""The step of every method: pairs, look-up, loss; then the copy moves and the dictionary is written.

Everything that learns or is kept between steps is here; nothing here knows of files, clocks or screens.
"""

import copy
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
from likewise.dictionaries import Found, InBatch, KeyQueue, MemoryBank, MomentumEncoder, consistency
from likewise.encoders.batch_norm import has_batch_norm
from likewise.pairs.future import Future
from likewise.randomness import generator, number
from likewise.recipe import Recipe, RecipeError
from likewise.training import optimizers, schedule
from likewise.training.ahead import look_ups_ahead
from likewise.training.batches import Batch, Batches
from likewise.training.features import place_of
from likewise.training.run import build_augmentation
from likewise.training.scores import SCORES, LookUp, build_loss
from likewise.training.towers import AnyTower, CaptionTower, FutureTower, build_tower
from likewise.views import Draws

ALL = slice(None)
Inputs = Callable[[slice], tuple[Tensor, ...]]  # what a tower is given, of a part of the batch


class Model(nn.Module):
    """What is distributed over ranks: the tower, and the loss for the sake of its parameters."""

    def __init__(self, tower: AnyTower, loss: nn.Module) -> None:
        super().__init__()
        self.tower, self.loss = tower, loss

    def forward(self, inputs: Inputs, parts: Sequence[slice]) -> list[Any]:
        """What the tower makes of each part."""
        return in_parts(self.tower, inputs, parts)


def in_parts(tower: nn.Module, inputs: Inputs, parts: Sequence[slice]) -> list[Any]:
    """What the tower makes of each part of a batch, all in one graph.

    Of several parts only the embeddings are kept, and backward, once it has the gradient of all of them, makes each
    part anew, dropout included: gradient caching (Gao et al., 2021). Memory is that of one part.
    """

    dtype = torch.get_default_dtype()
    # Draws of a device are kept for devices of tensors that are handed over: this one is.
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
    """A step that was taken: its loss, a tensor of no axes still on the device, and its look-ups."""

    loss: Tensor
    look_ups: list[LookUp]  # one, or one for each step ahead


class Learner:
    """One run's model, momentum copy, dictionary and optimizer, and the step that moves them."""

    def __init__(
        self, recipe: Recipe, about: Mapping[str, Any], batches: Batches, labels: Tensor | None, fabric: Fabric
    ) -> None:
        self.recipe, self.batches, self.labels, self.fabric = recipe, batches, labels, fabric
        self.augmentation = build_augmentation(recipe, about)
        tower = build_tower(recipe, about)
        if recipe.training.chunk and has_batch_norm(tower):
            raise RecipeError(
                "training.chunk embeds a batch in parts, whose batch statistics would be others than the batch's: "
                f"choose an encoder and a head without batch norm, such as vit_tiny and mlp, got {recipe.encoder.name} "
                f"and {recipe.encoder.head}"
            )
        if fabric.world_size > 1 and recipe.keys.by == "encoder" and fabric.device.type == "cuda":
            tower = nn.SyncBatchNorm.convert_sync_batchnorm(tower)  # type: ignore[no-untyped-call]  # one batch, one set of statistics
        model = Model(tower, build_loss(recipe.loss, len(batches.train)))
        self.channels_last = about["kind"] == "image" and fabric.device.type == "cuda"
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
        self.copy = MomentumEncoder(tower.keys, recipe.keys.momentum) if recipe.keys.by == "momentum" else None
        self.dtype = torch.float64 if recipe.training.precision == "64-true" else torch.float32
        self.dictionary = self._build_dictionary().to(fabric.device, self.dtype)
        # Only batch norm tells a shuffled batch from another.
        self.shuffles = self.copy is not None and has_batch_norm(tower)
        self.both = recipe.pairs.symmetric or recipe.loss.kind == "nt_xent"
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
        score = SCORES[self.recipe.loss.kind]
        loss = torch.stack([score(self.loss, look_up) * look_up.weight for look_up in look_ups]).mean()
        self.optimizer.zero_grad()
        self.fabric.backward(loss)
        if options.clip:
            self.fabric.clip_gradients(self.model, self.optimizer, max_norm=options.clip, error_if_nonfinite=False)
        self.optimizer.step()
        if self.copy is not None:
            keys = self.recipe.keys
            self.copy.follow(schedule.momentum_at(step, total, keys.momentum, keys.schedule))
        # What was found is the dictionary's own memory, about to be overwritten; its ids are still counted.
        seen = [
            replace(each, found=each.found._replace(negative_ids=each.found.negative_ids.clone())) for each in look_ups
        ]
        self.dictionary.update(key.detach(), ids)
        return Taken(loss.detach(), seen)

    def look_ups(self, query: Tensor, found: Found, ids: Tensor, batch: Batch) -> list[LookUp]:
        """What is asked of what was found: each query's key, or for each step ahead the frame that comes then."""
        pairs = self.batches.pairs
        if isinstance(pairs, Future):
            return look_ups_ahead(pairs, query, found, ids, batch, size=self.batches.size, seed=self.recipe.seed)
        labels = None if self.labels is None else self.labels[batch.items].to(query.device)
        return [LookUp(query, found, ids, labels, distinct=self.batches.distinct)]

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys (n, d) and their ids; queries are (n, d), or of future (items, frames, horizon, d).

        Both views, where both are queries, are neighbours.
        """
        torch.manual_seed(number(self.recipe.seed, f"dropout of rank {ranks.index()}", batch.step))
        ids = batch.ids.to(self.fabric.device)
        if self.copy is None and self.recipe.keys.by == "encoder" and not isinstance(self.tower, FutureTower):
            one, other = self.embed_pairs(batch)
            if not self.both:
                return one, other, ids
            return neighbours(one, other), neighbours(other, one), ids.repeat_interleave(2, dim=0)
        first = self.views(batch, "first")
        if isinstance(self.tower, FutureTower):
            return self.encode_future(batch, first)
        if self.recipe.keys.by == "bank":
            query = self.embed(first)
            return query, query.detach(), ids
        second = self.views(batch, "second")
        if not self.both:
            return self.embed(first), self.copied_keys(first, second, batch.step), ids
        one, other = self.embed(torch.cat([first, second])).chunk(2)
        return neighbours(one, other), self.copied_keys(first, second, batch.step), ids.repeat_interleave(2, dim=0)

    def copied_keys(self, first: Tensor, second: Tensor, step: int) -> Tensor:
        """Encode the keys of a batch's views by the momentum copy, in the order of the queries they belong to."""
        if not self.both:
            return self.encode_keys(second, step)
        one, other = self.encode_keys(torch.cat([first, second]), step).chunk(2)
        return neighbours(other, one)

    def encode_future(self, batch: Batch, windows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What each frame expects, (items, frames, horizon, d), all frames as keys, and their ids."""
        pairs = self.batches.pairs
        assert isinstance(pairs, Future)
        frames = self.tower.encoder.frames
        there = frames.there(windows)  # type: ignore[operator, union-attr]
        starts = (batch.starts // frames.hop).to(windows.device)  # type: ignore[operator, union-attr]
        ids = pairs.frame_ids(batch.items.to(windows.device), starts, there)
        query, key = self.embed(windows)
        if self.copy is not None:
            key = self.encode_keys(windows, batch.step)
        return query, key.flatten(0, 1), ids

    def embed_pairs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Both of each pair, (n, d) each, in one pass through the model, or in one for each chunk of the batch."""
        found = self.through_model(partial(self.pairs_of, batch), self.parts(batch))
        one, other = zip(*(each if isinstance(each, tuple) else each.chunk(2) for each in found), strict=True)
        return torch.cat(one), torch.cat(other)

    def pairs_of(self, batch: Batch, part: slice) -> tuple[Tensor, ...]:
        """What the tower is given: views of both, one after the other, or views of images and tokens of captions."""
        first = self.views(batch, "first", part)
        if isinstance(self.tower, CaptionTower):
            return first, batch.partner_data[part].to(self.fabric.device, non_blocking=True)
        return (torch.cat([first, self.views(batch, "second", part)]),)

    def parts(self, batch: Batch) -> list[slice]:
        """The rows that are embedded at once: all of them, or chunk by chunk."""
        rows = len(batch.items)
        size = self.recipe.training.chunk or rows
        return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]

    def embed(self, views: Tensor) -> Any:
        """Views through the model, all at once."""
        return self.through_model(lambda part: (views,), [ALL])[0]

    def through_model(self, inputs: Inputs, parts: Sequence[slice]) -> list[Any]:
        """Embeddings of each part: float32, or float64 in a run that is."""
        with default_dtype(self.dtype):  # Fabric hands out embeddings in it
            return self.model(inputs, parts)  # type: ignore[no-any-return]

    def encode_keys(self, views: Tensor, step: int) -> Tensor:
        """Keys by the momentum copy. Its batch statistics come from a shuffled batch, over all ranks, so that
        a query and its positive do not share theirs; the keys come back in order."""
        assert self.copy is not None
        # Keys have a seed of their own, so that they can be encoded once more without the queries.
        torch.manual_seed(number(self.recipe.seed, f"dropout of the keys of rank {ranks.index()}", step))
        with self.fabric.autocast():
            if not self.shuffles:
                keys: Tensor = self.copy(views)
                return keys.to(self.dtype)
            n = len(views)
            order = torch.randperm(n * ranks.count(), generator=generator(self.recipe.seed, "shuffle", step))
            order, back = order.to(views.device), order.argsort().to(views.device)
            mine = slice(ranks.index() * n, (ranks.index() + 1) * n)
            shuffled = self.copy(ranks.gather(views)[order[mine]])
            return ranks.gather(shuffled)[back[mine]].to(self.dtype)

    def views(self, batch: Batch, which: str, part: slice = ALL) -> Tensor:
        """The first or second views of a batch, or a part of them: drawn for the whole batch, this rank's applied."""
        data = (batch.data if which == "first" else batch.partner_data)[part]
        drawn = self._draws(which, batch.step).rows(batch.rows).rows(part)
        views = self.augmentation.apply(data.to(self.fabric.device, non_blocking=True), drawn)
        if self.channels_last:
            views = views.contiguous(memory_format=torch.channels_last)
        return views.to(self.dtype)

    def _draw(self, which: str, step: int) -> Draws:
        return self.augmentation.draw(self.batches.size, generator(self.recipe.seed, f"{which} view", step))

    def consistency(self) -> float:
        """How consistent the dictionary is with today's encoder; 1 for a batch, NaN for an empty one."""
        if isinstance(self.dictionary, InBatch):
            return 1.0
        with torch.no_grad(), self.unchanged_buffers():
            return consistency(self.dictionary, lambda step: ranks.gather(self.keys_today(self.batches.at(step))))

    def keys_today(self, batch: Batch) -> Tensor:
        """Encode the keys of a batch once more; a momentum copy's without the queries."""
        if self.copy is None:
            return self.encode(batch)[1]
        first = self.views(batch, "first")
        if isinstance(self.tower, FutureTower):
            return self.encode_keys(first, batch.step).flatten(0, 1)
        return self.copied_keys(first, self.views(batch, "second"), batch.step)

    def rehearse(self, batch: Batch) -> list[str]:
        """The passes of one step, or of its first chunk, over a copy of the tower, so that nothing moves.

        It is done when the device is.

        Gives the names of parameters that no gradient reached.
        """
        tower = copy.deepcopy(self.tower)
        of_pairs = self.recipe.keys.by != "bank" and not isinstance(tower, FutureTower)

        def inputs(part: slice) -> tuple[Tensor, ...]:
            both = of_pairs and (self.both or self.copy is None)
            return self.pairs_of(batch, part) if both else (self.views(batch, "first", part),)

        with self.fabric.autocast():
            if of_pairs and self.copy is not None:
                with torch.no_grad():
                    tower(*(inputs(ALL) if self.both else (self.views(batch, "second"),)))
            rows = in_parts(tower, inputs, self.parts(batch)[:1])
            outputs = [part for found in rows for part in (found if isinstance(found, tuple) else (found,))]
            energy = sum(part.float().square().sum() for part in outputs)
        energy.backward()
        energy.item()
        return [name for name, p in tower.named_parameters() if p.requires_grad and p.grad is None]

    @contextmanager
    def unchanged_buffers(self) -> Iterator[None]:
        """Let batch norm see batches without its running statistics moving."""
        modules = [self.tower, *([self.copy] if self.copy is not None else [])]
        buffers = [buffer for module in modules for buffer in module.buffers()]
        kept = [buffer.clone() for buffer in buffers]
        try:
            yield
        finally:
            for buffer, value in zip(buffers, kept, strict=True):
                buffer.copy_(value)

    def state(self) -> dict[str, Any]:
        """Everything that a checkpoint keeps."""
        state = {
            "tower": self.tower.state_dict(),
            "loss": self.loss.state_dict(),
            "dictionary": self.dictionary.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),  # a gradient scaler's, under 16-mixed
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

    def _build_dictionary(self) -> InBatch | KeyQueue | MemoryBank:
        options, columns = self.recipe.dictionary, self.batches.pairs.columns
        dim: int = self.tower.head.dim  # type: ignore[assignment]
        if options.kind == "queue":
            return KeyQueue(options.size, dim, columns=columns)
        if options.kind == "bank":
            rng = generator(self.recipe.seed, "bank")
            items = len(self.batches.train)
            return MemoryBank(items, dim, options.negatives, options.momentum, columns=columns, rng=rng)
        return InBatch()


def neighbours(one: Tensor, other: Tensor) -> Tensor:
    """Rows item by item: one's first, other's first, one's second, … (2n, d)."""
    return torch.stack([one, other], dim=1).flatten(0, 1)
