"""The present and the future of one sequence are a pair: the pretext task of CPC (van den Oord et al., 2018).

The prediction at frame t for the frame at t + k is looked up among encoded frames. Every frame has an id, so the
positive is never among its own negatives, and padding, which has id −1, is never a candidate.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from likewise import encoders, modalities, ranks
from likewise.data import Items
from likewise.data.parts import Ids, RaggedPart, spread
from likewise.dictionaries import Found
from likewise.dictionaries.kind import DictionaryKind
from likewise.losses.look_up import LookUp, shares_right
from likewise.memory import check_size
from likewise.modalities.modality import Choice, counted
from likewise.pairs.batch import Batch
from likewise.pairs.metric import Chart, Metric
from likewise.pairs.pairs import STEPS, Pairs, Shown
from likewise.pairs.towers import Tower
from likewise.randomness import generator
from likewise.recipe import Recipe, RecipeError, check_choice
from likewise.views.augmentation import PLAIN

NEGATIVES = {"both": "all sequences", "others": "other sequences", "same": "the same sequence"}
FRAMES = 2**32  # the id of a frame is item · FRAMES + its place in the item
SOME = 256  # pairs of frames that the report compares
SEQUENCES = 64  # default batch size: every frame of a sequence is a query


class FutureTower(Tower):
    """Maps sequences (n, t, c) to predictions of the next frames, (n, f, horizon, d), and to frames (n, f, d)."""

    def forward(self, sequences: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        frames = self.encoder.frames(sequences)  # type: ignore[operator]
        return self.head(self.encoder.context(frames)), frames  # type: ignore[operator]

    @property
    def keys(self) -> nn.Module:
        """The frame encoder: keys are frames without context."""
        return self.encoder.frames  # type: ignore[return-value]


class Future(Pairs):
    """Contexts and the frames 1 to `horizon` later, each looked up among `candidates` negative frames.

    The negatives are drawn separately for each step ahead: from all frames of the dictionary (`both`, `others`), or
    from those of the query's own sequence (`same`). For `others` the sequence is a second id, by which frames of the
    query's own sequence are masked, so a batch of few sequences leaves fewer negatives.
    """

    name = "future"
    options = ("preset", "window", "horizon", "candidates", "negatives")
    two_views = False
    sides_in_words = "one window"
    needs_frames = True
    in_chunks = False
    looks_ahead = True

    def __init__(self, horizon: int = 12, candidates: int = 128, negatives: str = "both") -> None:
        if horizon < 1 or candidates < 1:
            raise ValueError(f"horizon and candidates must be at least 1, got {horizon} and {candidates}")
        if negatives not in NEGATIVES:
            raise ValueError(f"negatives must be one of {', '.join(NEGATIVES)}, got {negatives!r}")
        self.horizon, self.candidates, self.negatives = horizon, candidates, negatives
        self.columns = 2 if negatives == "others" else 1

    # Before a run

    @classmethod
    def build(cls, items: Items, train: Ids, recipe: Recipe, files: Mapping[str, str]) -> "Future":
        return cls(recipe.pairs.horizon, recipe.pairs.candidates, recipe.pairs.negatives)

    @classmethod
    def check_items(cls, items: Items, train: Ids) -> None:
        if not isinstance(items.main, RaggedPart):
            raise RecipeError(f"pairs future needs sequences, got {items.kind}s in {items.name}")

    @classmethod
    def choices(cls, items: Items, train: Ids, recipe: Recipe) -> Iterator[Choice]:
        modality = modalities.of(items.main)
        yield Choice("pairs.preset", PLAIN, f"the items are {modality.noun}s")
        yield Choice("encoder.head", STEPS, "one matrix for each step ahead")
        yield Choice("training.batch_size", SEQUENCES, "each sequence has many frames")
        if recipe.loss.similarity == "dot":
            yield Choice("optimizer.lr", 0.001, "dot products of unnormalised rows need smaller steps")
        yield from modality.window_choices(items.main, train, recipe, looks_ahead=True)

    @classmethod
    def late_choices(cls, items: Items, recipe: Recipe) -> Iterator[Choice]:
        frames = cls.frames_per_window(items, recipe)
        if 2 <= frames <= recipe.pairs.horizon:
            few = f"a window of {recipe.pairs.window:,} samples has {counted(frames, 'frame', 'frames')}"
            yield Choice("pairs.horizon", max(1, frames // 2), few)

    @classmethod
    def check(cls, items: Items, recipe: Recipe) -> None:
        check_choice("pairs.negatives", recipe.pairs.negatives, NEGATIVES)
        for name in ("pairs.horizon", "pairs.candidates"):
            if recipe.value(name) < 1:
                raise RecipeError(f"{name} must be at least 1, got {recipe.value(name)}")
        hop, window = modalities.of(items.main).hop(recipe, items.main), recipe.pairs.window
        frames = window // hop
        if frames < 2:
            raise RecipeError(f"pairs.window must be at least two frames of {hop} samples, got {window:,}")
        if recipe.pairs.horizon >= frames:
            raise RecipeError(
                f"pairs.horizon must be below the {frames} frames of a window of {window:,} samples, "
                f"got {recipe.pairs.horizon}"
            )

    @classmethod
    def numbers_per_step(cls, recipe: Recipe) -> dict[tuple[str, ...], int]:
        batch, candidates = recipe.training.batch_size, recipe.pairs.candidates
        return {("pairs.candidates", "training.batch_size"): batch * candidates}

    @classmethod
    def keys_per_epoch(cls, items: Items, train: Ids, recipe: Recipe) -> int:
        """Return the number of frames."""
        assert isinstance(items.main, RaggedPart)
        return int((items.main.lengths[train] // cls.grid(items, recipe)).sum())

    @classmethod
    def describe(cls, items: Items, recipe: Recipe) -> str:
        options, frames = recipe.pairs, cls.frames_per_window(items, recipe)
        return (
            f"{super().describe(items, recipe)}, {frames} frames; {options.horizon} steps ahead, "
            f"each among {options.candidates} frames of {NEGATIVES[options.negatives]}"
        )

    @classmethod
    def describe_defaults(cls, recipe: Recipe, scale: str) -> str:
        ahead = f"{recipe.pairs.horizon} steps ahead, one matrix a step"
        return f"{scale}, {recipe.loss.similarity} product, {ahead}"

    @classmethod
    def describe_head(cls, recipe: Recipe) -> str:
        return f"{counted(recipe.pairs.horizon, 'matrix', 'matrices')} for the steps ahead"

    @classmethod
    def grid(cls, items: Items, recipe: Recipe) -> int:
        # If windows begin at whole frames, frames of two windows of one sequence coincide or differ, and ids can tell.
        return modalities.of(items.main).hop(recipe, items.main)

    @classmethod
    def frames_per_window(cls, items: Items, recipe: Recipe) -> int:
        return recipe.pairs.window // cls.grid(items, recipe)

    @classmethod
    def refusal(cls, recipe: Recipe, dictionary: DictionaryKind) -> str | None:
        if recipe.pairs.negatives == "same" and dictionary.stores:
            own = "pairs.negatives same draws from the query's own window"
            return f"{own}, so the dictionary must be batch, got {dictionary.name}"
        return None

    # The model

    @classmethod
    def build_head(cls, recipe: Recipe, backbone: nn.Module) -> nn.Module:
        if not isinstance(backbone, encoders.SequenceEncoder):
            raise RecipeError(f"pairs future needs an encoder with frames and contexts, got {recipe.encoder.name}")
        width, horizon = backbone.frames.width, recipe.pairs.horizon
        check_size({"pairs.horizon": horizon}, horizon * width * backbone.dim)
        return encoders.StepsAhead(backbone.dim, width, horizon)

    @classmethod
    def build_tower(cls, encoder: nn.Module, head: nn.Module, recipe: Recipe, about: Mapping[str, Any]) -> Tower:
        return FutureTower(encoder, head)

    @classmethod
    def finish(cls, encoder: nn.Module, embed: Callable[[], Tensor]) -> None:
        """Whiten the features.

        The loss compares W_k c with frames, so it determines the contexts c up to a linear map only, and their own
        lengths and angles mean nothing. Without whitening, a few directions, such as loudness, dominate every cosine.
        """
        assert isinstance(encoder, encoders.SequenceEncoder)
        encoder.whiten(embed)

    @classmethod
    def is_finished(cls, encoder: nn.Module) -> bool:
        assert isinstance(encoder, encoders.SequenceEncoder)
        return encoder.is_whitened

    # A step

    def read_partners(
        self, read: Callable[[Tensor, str], Tensor], data: Tensor, items: Tensor, partners: Tensor, *, is_whole: bool
    ) -> Tensor:
        return data  # the future of a window is in the window

    def inputs(self, first: Callable[[], Tensor], second: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        return (first(),)

    def sides(self, output: Any) -> tuple[Tensor, Tensor]:
        query, key = output
        return query, key

    def queries(self, output: Any) -> Tensor:
        return output[0]  # type: ignore[no-any-return]

    def key_view(self, first: Callable[[], Tensor], second: Callable[[], Tensor]) -> Tensor:
        return first()

    def rows(
        self, query: Tensor, key: Tensor, batch: Batch, first: Callable[[], Tensor], tower: nn.Module
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the predictions of each frame, (items, frames, horizon, d), all frames as keys, and their ids."""
        windows, frames = first(), tower.encoder.frames  # type: ignore[union-attr]
        starts = (batch.starts // frames.hop).to(windows.device)  # type: ignore[operator, union-attr]
        is_frame = frames.there(windows)  # type: ignore[operator, union-attr]
        return query, key.flatten(0, 1), self.frame_ids(batch.items.to(windows.device), starts, is_frame)

    def some_rows(
        self, one: Tensor, other: Tensor, batch: Batch, first: Callable[[], Tensor], tower: nn.Module
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the predictions of some frames for the next frame, that next frame, and its id."""
        query, key, ids = self.rows(one, other, batch, first, tower)
        n, frames = query.shape[:2]
        ids = ids.view(n, frames, -1)[:, 1:].flatten(0, 1)
        expected, came = query[:, :-1, 0].flatten(0, 1), key.view(n, frames, -1)[:, 1:].flatten(0, 1)
        valid = (ids[:, 0] >= 0).nonzero()[:, 0]
        chosen = valid[torch.from_numpy(spread(np.arange(len(valid)), SOME))]
        return expected[chosen], came[chosen], ids[chosen]

    def frame_ids(self, items: Tensor, first: Tensor, is_frame: Tensor) -> Tensor:
        """Return the ids of all frames (n · f,) or (n · f, 2), −1 for padding.

        `items` (n,) are the items, `first` (n,) the first frame of each window, counted from the beginning of the
        item, and `is_frame` (n, f) says which frames are not padding.
        """
        place = first[:, None] + torch.arange(is_frame.shape[1], device=is_frame.device)
        frames = (items[:, None] * FRAMES + place).where(is_frame, -1)
        if self.columns == 1:
            return frames.flatten()
        return torch.stack([frames, items[:, None].expand_as(frames).where(is_frame, -1)], dim=2).flatten(0, 1)

    def draw(self, ids: Tensor, rng: torch.Generator) -> Tensor:
        """Draw rows (candidates,) of frames with these ids (k,) or (k, g), with replacement, but no padding."""
        if not len(ids):  # the queue is still empty
            return torch.empty(0, dtype=torch.int64, device=ids.device)
        is_frame = (ids if ids.ndim == 1 else ids[:, 0]) >= 0
        return _picked(is_frame[None], torch.rand(1, self.candidates, generator=rng, dtype=torch.float64))[0]

    def draw_within(self, ids: Tensor, rows: slice, total: int, rng: torch.Generator) -> Tensor:
        """Draw frames (n, candidates) from each sequence, given ids (n, f) of its frames.

        The n sequences are `rows` of the `total` sequences over all ranks, for which every rank draws.
        """
        shares = torch.rand(total, self.candidates, generator=rng, dtype=torch.float64)[rows]
        return _picked(ids >= 0, shares)

    def look_ups(
        self, query: Tensor, found: Found, ids: Tensor, labels: Tensor | None, batch: Batch, *, size: int, seed: int
    ) -> list[LookUp]:
        """Return a look-up for each step ahead, with all frames of the batch as queries.

        query (n, f, horizon, d): the predictions of each frame; found.positive (n · f, d): the encoded frames;
        ids (n · f,) or (n · f, 2): the ids of these frames.
        """
        n, frames = query.shape[:2]
        key, ids = found.positive, ids.view(n, frames, *ids.shape[1:])
        look_ups = []
        # One column of the horizon is a view, so queries are not copied. Cutting off the last frames would copy them.
        for ahead, expected in enumerate(query.flatten(0, 1).unbind(dim=1), start=1):
            rng = generator(seed, f"candidates {ahead} ahead", batch.step)
            if self.negatives == "same":
                places = self.draw_within(ids, batch.rows, size, rng)
                negatives = key.view(n, frames, -1).take_along_dim(places[:, :, None], dim=1)
                negative_ids = ids.take_along_dim(places, dim=1)
            else:
                rows = self.draw(found.negative_ids, rng)
                negatives, negative_ids = found.negatives[rows], found.negative_ids[rows]
            # A query has the id of the frame that it predicts, t + k and not t. The last frames predict none: id −1.
            wanted = torch.full_like(ids, -1)
            wanted[:, :-ahead] = ids[:, ahead:]
            candidates = Found(key.roll(-ahead, dims=0), negatives, negative_ids)
            look_ups.append(LookUp(expected, candidates, wanted.flatten(0, 1), None, distinct=False))
        return _weighted(look_ups)

    # What was learned

    def measure(self, look_ups: list[LookUp], similarity: str) -> dict[str, Any]:
        return {"accuracy": shares_right(look_ups, similarity)}

    @classmethod
    def metrics(cls, row: Mapping[str, Any], recipe: Recipe, held_out: Mapping[str, Any] | None = None) -> list[Metric]:
        shares = row.get("accuracy")  # by steps ahead
        if not shares:
            return []
        # A few of the steps ahead are enough to see how the accuracy falls.
        some = sorted({0, len(shares) // 4, len(shares) // 2, len(shares) - 1})
        progress = "accuracy " + ", ".join(f"+{k + 1} {shares[k]:.2f}" for k in some if shares[k] is not None)
        text = " ".join(f"{share:.3f}" for share in shares if share is not None)
        candidates = (row.get("candidates") or 1 + recipe.pairs.candidates) - 1
        note = f"How often a context finds its future among {candidates:,.0f} other frames: by chance "
        curves = {"held-out items": (held_out or {}).get("accuracy"), "the last step": shares}
        points = {name: [[k, share] for k, share in enumerate(each, 1)] for name, each in curves.items() if each}
        title, x = "Accuracy over the horizon", "frames ahead"
        chart = Chart(title, f"{note}{1 / (1 + candidates):.3f}.", points=points, x=x)
        words = "share of frames 1, 2, … steps ahead that were found, in the last batch"
        return [Metric("accuracy", shares, text, words, progress, chart=chart)]

    @classmethod
    def shown(cls, recipe: Recipe) -> Shown:
        task = "From the beginning of a window, the model has to find the rest of it among the frames of all windows."
        return Shown({"first": "window"}, task)


def _weighted(look_ups: list[LookUp]) -> list[LookUp]:
    """Weight each look-up by this rank's share of the queries, because ranks may have different numbers of them.

    A step that lies so far ahead that no sequence of the batch reaches it does not count in the mean over the steps.
    """
    counts = torch.stack([look_up.is_valid.sum() for look_up in look_ups]).to(look_ups[0].query.dtype)
    means = ranks.mean(counts)
    reached = means > 0
    weights = counts / means.where(reached, 1) * len(look_ups) / reached.sum().clamp(min=1)
    return [look_up.with_weight(weight) for look_up, weight in zip(look_ups, weights, strict=True)]


def _picked(is_frame: Tensor, shares: Tensor) -> Tensor:
    """Return places (n, k) of frames that are not padding, chosen by shares in [0, 1).

    `is_frame` (n, f) stays on its device: the host need not know how many frames there are.
    """
    count = is_frame.sum(dim=1, keepdim=True)
    rank = (shares.to(is_frame.device) * count).long().minimum((count - 1).clamp(min=0))
    return torch.searchsorted(is_frame.cumsum(dim=1), rank + 1).clamp(max=is_frame.shape[1] - 1)
