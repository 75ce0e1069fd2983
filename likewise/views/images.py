"""Augment batches of images by crops, small affine transformations, colours and blur, with the papers' settings."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from likewise.views.augmentation import PLAIN, Augmentation, Draws, check_draws, check_whole
from likewise.views.blur import Blur, blur_matrices, blur_weights, radius_for
from likewise.views.colour import Jitter, Recolouring, recolouring, solarise
from likewise.views.crops import Affine, Crop, centre_square, chance, resample, resample_one, resize_weights

MEAN = {1: (0.5,), 3: (0.485, 0.456, 0.406)}  # ImageNet's for three channels
STD = {1: (0.5,), 3: (0.229, 0.224, 0.225)}

# Above this many pixels per image, a CPU processes image by image, because the matrices are mostly zeros.
LARGE = 80 * 80
# Values per chunk on a CPU, so that the chunk, the product and the result fit into the second-level cache.
CHUNK = 2**18


@dataclass(frozen=True)
class PlainViews:
    """Every view is the image itself: its largest centred square, resized to `size`, normalised."""

    size: int
    channels: int = 3
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_whole("size", self.size, 2)
        if self.channels not in MEAN:
            raise ValueError(f"channels must be 1 or 3, got {self.channels!r}")
        # If empty, use the defaults for this number of channels.
        object.__setattr__(self, "mean", self.mean or MEAN[self.channels])
        object.__setattr__(self, "std", self.std or STD[self.channels])
        if not len(self.mean) == len(self.std) == self.channels:
            got = f"{len(self.mean)} and {len(self.std)}"
            raise ValueError(f"mean and std must have {self.channels} numbers each, got {got}")

    def draw(self, n: int, rng: torch.Generator) -> Draws:
        return Draws({"row": torch.arange(n)})  # no random numbers; only keeps the number of rows

    @torch.no_grad()
    def apply(self, items: Tensor, draws: Draws) -> Tensor:
        self._check(items, draws)
        return self.plain(items)

    @torch.no_grad()
    def plain(self, items: Tensor) -> Tensor:
        """Resize and normalise images, (n, c, h, w) uint8 to (n, c, size, size) float32."""
        self._check(items)
        out = self._empty(items)
        with full_precision(items.device):
            for rows in chunks(items):
                self._normalise(centre_square(items[rows], self.size), out[rows])
        return out

    def restored(self, views: Tensor) -> Tensor:
        """Undo the normalisation of views (n, c, size, size), giving values of 0 to 1."""
        mean, std = (torch.tensor(x, device=views.device)[:, None, None] for x in (self.mean, self.std))
        return views * std + mean

    def _check(self, images: Tensor, draws: Draws | None = None) -> None:
        if not isinstance(images, Tensor) or images.dtype is not torch.uint8:
            got = images.dtype if isinstance(images, Tensor) else type(images).__name__
            raise ValueError(f"images must be a tensor of torch.uint8, got {got}")
        if images.ndim != 4 or images.shape[1] != self.channels or 0 in images.shape[2:]:
            raise ValueError(f"images must be of shape (n, {self.channels}, h, w), got {tuple(images.shape)}")
        check_draws("images", images, draws)

    def _empty(self, images: Tensor) -> Tensor:
        shape = (len(images), self.channels, self.size, self.size)
        return torch.empty(shape, dtype=torch.float32, device=images.device)

    def _normalise(self, images: Tensor, out: Tensor) -> None:
        """Write (x / 255 − mean) / std into `out`, for values x of 0 to 255."""
        for channel, (mean, std) in enumerate(zip(self.mean, self.std, strict=True)):
            torch.mul(images[:, channel], 1 / (255 * std), out=out[:, channel]).sub_(mean / std)


@dataclass(frozen=True)
class PhotoViews(PlainViews):
    """Crop, flip, jitter colours, turn grey, blur and solarise, in this order; a step that is None is skipped.

    `grey` is the probability of greyscale, `solarise` the probability of inverting values of at least `threshold`, in
    [0, 1]. Values are clamped to [0, 1] once, before solarising, so that all steps before it are linear.
    """

    crop: Crop = field(default_factory=Crop)
    jitter: Jitter | None = None
    grey: float = 0.0
    blur: Blur | None = None
    solarise: float = 0.0
    threshold: float = 128 / 255

    def draw(self, n: int, rng: torch.Generator) -> Draws:
        values = self.crop.draw(n, rng)
        if self.jitter is not None:
            values |= self.jitter.draw(n, rng)
        if self.grey:
            values["grey"] = chance(n, self.grey, rng)
        if self.blur is not None:
            values |= self.blur.draw(n, rng)
        if self.solarise:
            values["solarise"] = chance(n, self.solarise, rng)
        return Draws(values)

    @torch.no_grad()
    def apply(self, items: Tensor, draws: Draws) -> Tensor:
        """Augment images, (n, c, h, w) uint8 to (n, c, size, size) float32, on their device."""
        self._check(items, draws)
        colours = recolouring(draws.values, self.mean, self.std, items.device)
        out = self._empty(items)
        h, w = items.shape[2:]
        by_matrices = items.device.type != "cpu" or max(h * w, self.size**2) <= LARGE
        with full_precision(items.device):
            (self._by_matrices if by_matrices else self._one_by_one)(items, draws, colours, out)
        if self.solarise:
            chosen = draws.values["solarise"].nonzero().squeeze(1).to(items.device)
            out[chosen] = solarise(out[chosen], self.threshold, colours.bounds)
        return out

    def _by_matrices(self, images: Tensor, draws: Draws, colours: Recolouring, out: Tensor) -> None:
        device, (h, w), size = images.device, images.shape[2:], self.size
        boxes = self.crop.boxes(draws.values, h, w).to(device)
        flips = draws.values["flip"].to(device)
        for chunk in chunks(images):
            # Rows and columns in one tensor (2k, size, max(h, w)), rows first, to halve the number of calls.
            start, length = boxes[chunk, :2].T.flatten(), boxes[chunk, 2:].T.flatten()
            flip = torch.cat([torch.zeros_like(flips[chunk]), flips[chunk]])
            weights = resize_weights(start, length, size, max(h, w), flip)
            average = weights.mean(1)  # gives the mean of the view before its blur, which the colours need
            if self.blur is not None:
                blur_weights(weights, *self.blur.kernels(draws.rows(chunk).values))
            rows, columns = weights[:, :, :h].chunk(2)[0], weights[:, :, :w].chunk(2)[1]
            pixels = images[chunk].float()
            means = resample(pixels, average[: len(pixels), None, :h], average[len(pixels) :, None, :w])
            colours.apply(resample(pixels, rows, columns), means.flatten(2), chunk, out[chunk])

    def _one_by_one(self, images: Tensor, draws: Draws, colours: Recolouring, out: Tensor) -> None:
        boxes = self.crop.boxes(draws.values, images.shape[2], images.shape[3]).tolist()
        flips = draws.values["flip"].tolist()
        kernels: dict[int, Tensor] = {}
        if self.blur is not None:
            chosen, taps = self.blur.kernels(draws.values)
            kernels = dict(zip(chosen.tolist(), taps, strict=True))
        for i, (box, flip) in enumerate(zip(boxes, flips, strict=True)):
            view = resample_one(images[i], box, flip, self.size)
            means = view.mean((2, 3))[:, :, None]
            if i in kernels:
                matrix = blur_matrices(kernels[i][None], self.size)
                view = resample(view, matrix, matrix)
            colours.apply(view, means, slice(i, i + 1), out[i : i + 1])


@dataclass(frozen=True)
class DrawingViews(PlainViews):
    """Augment digits, glyphs and drawings: move them a little, but do not crop or mirror, which can change the meaning.

    The largest centred square is resized and transformed by `affine`, then blurred if `blur` is given, jittered if
    `jitter` is given, and turned grey with probability `grey`.
    """

    affine: Affine = field(default_factory=Affine)
    blur: Blur | None = None
    jitter: Jitter | None = None
    grey: float = 0.0

    def draw(self, n: int, rng: torch.Generator) -> Draws:
        values = self.affine.draw(n, rng)
        if self.blur is not None:
            values |= self.blur.draw(n, rng)
        if self.jitter is not None:
            values |= self.jitter.draw(n, rng)
        if self.grey:
            values["grey"] = chance(n, self.grey, rng)
        return Draws(values)

    @torch.no_grad()
    def apply(self, items: Tensor, draws: Draws) -> Tensor:
        """Augment images, (n, c, h, w) uint8 to (n, c, size, size) float32, on their device."""
        self._check(items, draws)
        out = self._empty(items)
        coloured = self.jitter is not None or bool(self.grey)
        colours = recolouring(draws.values, self.mean, self.std, items.device) if coloured else None
        with full_precision(items.device):
            for rows in chunks(items):
                drawn = draws.rows(rows).values
                views = self.affine.apply(centre_square(items[rows], self.size), drawn)
                if self.blur is not None:
                    chosen, kernels = self.blur.kernels(drawn)
                    chosen, blurs = chosen.to(items.device), blur_matrices(kernels.to(items.device), self.size)
                    views[chosen] = resample(views[chosen], blurs, blurs)
                if colours is None:
                    self._normalise(views, out[rows])
                else:
                    colours.apply(views, views.mean((2, 3))[:, :, None], rows, out[rows])
        return out


def _moco_v1(size: int, channels: int) -> Augmentation:
    """Return the views of He et al., 2019, after InstDisc: without blur, colours always jittered."""
    return PhotoViews(size, channels, jitter=Jitter(0.4, 0.4, 0.4, 0.4, p=1.0), grey=0.2)


def _moco_v2(size: int, channels: int) -> Augmentation:
    """Return the views of Chen et al., 2020b."""
    return PhotoViews(
        size, channels, jitter=Jitter(0.4, 0.4, 0.4, 0.1, p=0.8), grey=0.2, blur=Blur(radius_for(size), p=0.5)
    )


def _simclr(size: int, channels: int) -> Augmentation:
    """Return the views of Chen et al., 2020a: blur and colour strength 1; up to 32 pixels ½ and no blur (CIFAR-10)."""
    if size <= 32:
        jitter, blur = Jitter(0.4, 0.4, 0.4, 0.1, p=0.8), None
    else:
        jitter, blur = Jitter(0.8, 0.8, 0.8, 0.2, p=0.8), Blur(radius_for(size), p=0.5)
    return PhotoViews(size, channels, crop=Crop((0.08, 1.0)), jitter=jitter, grey=0.2, blur=blur)


def _captions(size: int, channels: int) -> Augmentation:
    """Return views for images with captions: the image stays in view as a whole, often smaller.

    It is not mirrored and keeps its hues, because captions mention sides and colours.
    """
    affine = Affine(rotation=10.0, zoom=(0.5, 1.2), ratio=(4 / 5, 5 / 4), shear=0.1, shift=0.1)
    return DrawingViews(size, channels, affine=affine, jitter=Jitter(0.4, 0.4, 0.4, 0.0, p=0.8), grey=0.2)


PRESETS: dict[str, Callable[[int, int], Augmentation]] = {
    "moco_v1": _moco_v1,
    "moco_v2": _moco_v2,
    "simclr": _simclr,
    "captions": _captions,
    "greyscale": DrawingViews,
    PLAIN: PlainViews,
}


def chunks(images: Tensor) -> Iterator[slice]:
    """Yield slices of rows: small enough for a CPU's cache, all rows at once on an accelerator."""
    n, on_cpu = len(images), images.device.type == "cpu"
    count = -(-images.numel() // CHUNK) if on_cpu else 1
    step = -(-n // max(1, count))
    return (slice(start, min(start + step, n)) for start in range(0, n, max(1, step)))


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Disable autocast: weights in bfloat16, with 8 bits of precision, would move the edges of a crop."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()
