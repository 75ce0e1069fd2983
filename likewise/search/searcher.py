"""Items of a source, seen by an encoder, and an index over them: by file, id or words; double, lonely or mislabelled.

Vectors and index are kept in the run's folder and taken from there the next time, if they belong to the same encoder,
layer and data.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from likewise import ranks
from likewise.data import Items
from likewise.data.images import extension
from likewise.encoders.features import features
from likewise.evaluation.geometry import collapse_of
from likewise.modalities import MODALITIES
from likewise.search import Index, SearchError, duplicates, outliers, structures, suspects
from likewise.search.files import AGAIN
from likewise.training.encoder import Encoder, check_layer, load

NAMED = 10  # words that a note names
FILES = {ending for modality in MODALITIES.values() for ending in modality.extensions}  # what a file's name ends in


@dataclass(frozen=True, repr=False)
class Searcher:
    """Items of a source, seen by an encoder, with an index over them. `Searcher.open` makes one."""

    encoder: Encoder
    items: Items
    index: Index
    layer: str

    def __repr__(self) -> str:
        kind, name = self.index.kind, self.encoder.recipe.encoder.name
        return f"Searcher({len(self.items):,} items of {self.items.name}, {self.layer} of {name}, {kind})"

    @classmethod
    def open(
        cls,
        run: str | Path | Encoder,
        source: Any = None,
        *,
        layer: str | None = None,
        kind: str = "auto",
        index: str | Path | None = None,
        columns: Mapping[str, str] | None = None,
        trust: bool = False,
        progress: bool = True,
        tell_share: Callable[[float], None] = lambda share: None,
    ) -> "Searcher":
        """An index over a source, by default the run's own data.

        `kind` is flat, hnsw, ivfpq, or chosen by size. It is kept in the folder `index`, by default below the run's,
        and taken from there, unless it belongs to another encoder, layer or data: then it is refused. `trust` allows
        the code of an encoder (`module:callable`) that a run from elsewhere names. `tell_share` is called with the
        share of the items that is embedded, 0 to 1.
        """
        structures.check_kind(kind)
        encoder = run if isinstance(run, Encoder) else load(run, trust=trust).to(ranks.device())
        layer = layer or encoder.default_layer
        check_layer(layer, encoder.recipe)
        items = encoder.open(source, columns=columns, progress=progress)
        belongs_to = f"{encoder.fingerprint(layer)} {items.fingerprint}"
        folder = None if index is None else Path(index)
        if folder is None and not isinstance(run, Encoder):
            folder = Path(run) / "search" / f"{kind}-{hashlib.sha256(belongs_to.encode()).hexdigest()[:12]}"
        if folder is not None and (folder / "index.json").exists():
            kept = Index.load(folder, belongs_to)
            if kind not in ("auto", kept.kind):
                raise SearchError(f"the index in {folder} must be {kind}, got {kept.kind}: {AGAIN}")
            return cls(encoder, items, kept, layer)
        kind = structures.choose(kind, len(items))  # now, and not when all is embedded
        network, ids = encoder.up_to(layer), np.arange(len(items))
        vectors = features(network, encoder.augmentation, items, ids, tell_share).numpy()
        built = Index.build(vectors, kind, belongs_to=belongs_to)
        if index is not None:
            built.save(index)
        elif folder is not None:
            with contextlib.suppress(OSError):  # of a run that cannot be written to it is made anew each time
                built.save(folder)
        return cls(encoder, items, built, layer)

    def like(self, query: str | int | Path, k: int = 10) -> list[dict[str, Any]]:
        """The k items most like a file, an item by id or path, or, where the encoder knows words, a text."""
        meant = self.meant(query)
        if isinstance(meant, int):
            return self._nearest(self.index.vectors[meant : meant + 1], k, np.array([meant]))
        return self.like_file(meant, k) if isinstance(meant, Path) else self.like_words(meant, k)

    def meant(self, query: str | int | Path) -> int | Path | str:
        """Say what a query is: an item's id, a file or words. What can be none of them is refused."""
        text = str(query)
        # Words may be longer than a path can be: unlike those of Path, these two then say no.
        is_file, is_folder = os.path.isfile(text), os.path.isdir(text)
        is_id = isinstance(query, int) or (text.isascii() and text.isdigit() and not is_file)
        own = int(text) if is_id else None
        if own is not None and not 0 <= own < len(self.items):
            raise SearchError(f"an id must be below {len(self.items):,}, got {own}")
        if own is not None:
            return own
        if is_file:
            return Path(text)
        if text in (self.items.paths or ()):  # as it is printed
            return (self.items.paths or ()).index(text)
        # A path with a slip of the pen is not meant as words.
        if is_folder or ("." in text and extension(text) in FILES):
            raise SearchError(f"QUERY must be a file that is there, got {text}")
        if self.encoder.knows_words and not self.knows_words:
            raise SearchError(f"words need layer head, got {self.layer}")
        if not self.knows_words:
            raise SearchError(f"QUERY must be a file or an item's id (words are for runs of clip), got {text!r}")
        return text

    def note_on_words(self, words: str) -> str | None:
        """Name the words that no caption had in training, or return None: what is found for them means nothing."""
        unseen = self.encoder.unseen(words)
        if not unseen:
            return None
        named = ", ".join(unseen[:NAMED]) + (f" and {len(unseen) - NAMED:,} more" if len(unseen) > NAMED else "")
        return f"no caption had {named} in training, so what is found for that means nothing"

    def note_on_collapse(self) -> str | None:
        """Say how the embeddings have collapsed, or return None: of collapsed ones, cosines say little."""
        return collapse_of(self.index.vectors)

    def like_file(self, path: Path, k: int = 10, *, name: str | None = None) -> list[dict[str, Any]]:
        """The k items most like a file of their kind, which has a name where its path says nothing."""
        if self.takes is None:
            raise SearchError(f"{self.items.kind}s are asked for by id, got the file {name or path}")
        try:
            opened = self.encoder.modality.open_file(path, self.items.main, self.encoder.about)
        except Exception as error:  # decoders raise nearly anything on a damaged file
            raise SearchError(f"{name or path} cannot be read: {reason(error)}") from None
        vector = features(self.encoder.up_to(self.layer), self.encoder.augmentation, opened, np.arange(1)).numpy()
        return self._nearest(vector, k)

    def like_words(self, words: str, k: int = 10) -> list[dict[str, Any]]:
        """The k items most like a text."""
        return self._nearest(self.encoder.embed_text([words]), k)

    @property
    def takes(self) -> str | None:
        """What kind of file items can be asked for by; None: by no file."""
        return self.encoder.modality.file_kind

    @property
    def knows_words(self) -> bool:
        """Whether items can be asked for in words."""
        return self.encoder.knows_words and self.layer == "head"

    def duplicates(self, threshold: float) -> list[dict[str, Any]]:
        """Groups of items that are linked by cosines of at least `threshold`."""
        found = duplicates(self.index, threshold)
        return [
            {"similarity": round(group.similarity, 4), "items": [self.told(place) for place in group.places]}
            for group in found
        ]

    def outliers(self, n: int) -> list[dict[str, Any]]:
        """The loneliest items: those least like their nearest."""
        return [self.told(each.place) | {"similarity": round(each.similarity, 4)} for each in outliers(self.index, n)]

    def suspects(self, n: int) -> list[dict[str, Any]]:
        """Items whose label their neighbours contradict, and what these say."""
        if self.items.labels is None:
            raise SearchError(f"suspects need labels, got none in {self.items.name}")
        return [
            self.told(each.place)
            | {"suggested": self.items.classes[each.suggested]}
            | {"share": round(each.share, 4), "own": round(each.own, 4)}
            for each in suspects(self.index, self.items.labels, n)
        ]

    def told(self, place: int) -> dict[str, Any]:
        """What is known of an item."""
        items = self.items
        found: dict[str, Any] = {"id": place}
        if items.paths is not None:
            found["path"] = items.paths[place]
        if items.labels is not None:
            found["label"] = items.classes[items.labels[place]] if items.labels[place] >= 0 else None
        if items.captions is not None:
            found["caption"] = items.captions[place][0]
        return found

    def _nearest(
        self, vector: NDArray[np.float32], k: int, exclude: NDArray[np.int64] | None = None
    ) -> list[dict[str, Any]]:
        similarity, places = self.index.search(np.asarray(vector), k, exclude=exclude)
        pairs = zip(places[0].tolist(), similarity[0].tolist(), strict=True)
        return [self.told(place) | {"similarity": round(cosine, 4)} for place, cosine in pairs]


def reason(error: Exception) -> str:
    """What a decoder complains of, without the path that libsndfile adds."""
    return " ".join(str(getattr(error, "error_string", None) or error).split())[:200] or type(error).__name__
