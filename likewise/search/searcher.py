"""Search the items of a source by file, id or words, and find its duplicates, outliers and suspect labels.

The vectors and the index are saved in the run's folder. The next search loads them if they belong to the same encoder,
layer and data. If items were added, changed or removed, only new and changed ones are embedded.
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
from likewise.encoders.known import vectors_of
from likewise.evaluation.geometry import collapse_of
from likewise.modalities import MODALITIES
from likewise.search import Index, SearchError, duplicates, files, outliers, structures, suspects
from likewise.search.files import AGAIN, OtherIndexError
from likewise.training.encoder import Encoder, check_layer, load

NAMED = 10  # words that a note lists
FILES = {ending for modality in MODALITIES.values() for ending in modality.extensions}  # endings of file names


@dataclass(frozen=True, repr=False)
class Searcher:
    """The items of a source, with an index over their embeddings. Use `Searcher.open` to make one."""

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
        """Embed and index a source, by default the data of the run, or load the index that was saved before.

        `kind` is flat, hnsw or ivfpq; `auto` chooses by the number of items. The index is saved in the folder `index`,
        by default within the run. An index in that folder is loaded, or brought up to date if the data have changed:
        only new and changed items are embedded. SearchError is raised if it belongs to another encoder or layer, or if
        most of its items are gone. `trust` allows the run to import its own encoder (`module:callable`), which executes
        code. `tell_share` is called with the share of the items embedded so far, 0 to 1.
        """
        structures.check_kind(kind)
        encoder = run if isinstance(run, Encoder) else load(run, trust=trust).to(ranks.device())
        layer = layer or encoder.default_layer
        check_layer(layer, encoder.recipe)
        items = encoder.open(source, columns=columns, progress=progress)
        owner, whence = encoder.fingerprint(layer), _hash_of(encoder.recipe.data.source if source is None else source)
        belongs_to = f"{owner} {items.fingerprint}"
        folder = None if index is None else Path(index)
        if folder is None and not isinstance(run, Encoder):
            folder = Path(run) / "search" / f"{kind}-{hashlib.sha256(belongs_to.encode()).hexdigest()[:12]}"
        refusal: OtherIndexError | None = None
        if folder is not None and (folder / files.NAME).exists():
            kind = _agreed(kind, folder)
            try:
                return cls(encoder, items, Index.load(folder, belongs_to), layer)
            except OtherIndexError as error:
                refusal = error
        kind = structures.choose(kind, len(items))  # raises errors now, and not after everything was embedded
        ids = np.arange(len(items))
        digests = items.main.digests(ids)
        saved = [] if folder is None else [folder] if index is not None else sorted(folder.parent.glob("*"))
        known = files.best_known(saved, owner, digests)
        if refusal is not None and not known.is_earlier_state(digests):
            raise refusal
        vectors = vectors_of(encoder.up_to(layer), encoder.augmentation, items, ids, digests, known, tell_share)
        built = Index.build(vectors, kind, belongs_to=belongs_to, digests=digests, source=whence)
        if index is not None:
            built.save(index)
        elif folder is not None:
            with contextlib.suppress(OSError):  # if the run is read-only, the index is built again each time
                built.save(folder)
                _remove_superseded(folder, owner, built)
        return cls(encoder, items, built, layer)

    def like(self, query: str | int | Path, k: int = 10) -> list[dict[str, Any]]:
        """Return the k items most similar to a file, to an item by id or path, or, with a text encoder, to a text."""
        parsed = self.parse_query(query)
        if isinstance(parsed, int):
            return self._nearest(self.index.vectors[parsed : parsed + 1], k, np.array([parsed]))
        return self.like_file(parsed, k) if isinstance(parsed, Path) else self.like_words(parsed, k)

    def parse_query(self, query: str | int | Path) -> int | Path | str:
        """Return what a query means: an item's id, a file or a text; raise SearchError if it can be none of them."""
        text = str(query)
        # A text may be longer than a path can be. Unlike the methods of Path, these two then return False.
        is_file, is_folder = os.path.isfile(text), os.path.isdir(text)
        is_id = isinstance(query, int) or (text.isascii() and text.isdigit() and not is_file)
        own = int(text) if is_id else None
        if own is not None and not 0 <= own < len(self.items):
            raise SearchError(f"an id must be below {len(self.items):,}, got {own}")
        if own is not None:
            return own
        only_words = self.takes is None and self.knows_words  # no file can be a query, so a text is not the name of one
        if is_file and not only_words:
            return Path(text)
        if text in (self.items.paths or ()):  # a path as results print it
            return (self.items.paths or ()).index(text)
        if only_words:
            return text
        # This looks like a mistyped path and not like a text.
        if is_folder or ("." in text and extension(text) in FILES):
            raise SearchError(f"QUERY must be an existing file, got {text}")
        if self.encoder.layers_for_words() and not self.knows_words:
            raise SearchError(f"a search by words needs layer head, got {self.layer}")
        if not self.knows_words:
            needs = "words need a run of clip, or one on texts"
            raise SearchError(f"QUERY must be a file or an item's id ({needs}), got {text!r}")
        return text

    def note_on_words(self, words: str) -> str | None:
        """Return a note on words that no training caption contains, so that results for them mean nothing, or None."""
        unseen = self.encoder.unseen(words)
        if not unseen:
            return None
        named = ", ".join(unseen[:NAMED]) + (f" and {len(unseen) - NAMED:,} more" if len(unseen) > NAMED else "")
        return f"no training caption contains {named}, so the results for it mean nothing"

    def note_on_collapse(self) -> str | None:
        """Return a note if the embeddings have collapsed, because their cosines then say little, or None."""
        return collapse_of(self.index.vectors)

    def like_file(self, path: Path, k: int = 10, *, name: str | None = None) -> list[dict[str, Any]]:
        """Return the k items most similar to a file of the same modality; messages call it `name` or else `path`."""
        if self.takes is None:
            raise SearchError(f"{self.items.kind}s can only be searched by id, got the file {name or path}")
        try:
            opened = self.encoder.modality.open_file(path, self.items.main, self.encoder.about)
        except Exception as error:  # decoders raise nearly anything on a damaged file
            raise SearchError(f"{name or path} cannot be read: {reason(error)}") from None
        vector = features(self.encoder.up_to(self.layer), self.encoder.augmentation, opened, np.arange(1)).numpy()
        return self._nearest(vector, k)

    def like_words(self, words: str, k: int = 10) -> list[dict[str, Any]]:
        """Return the k items most similar to a text."""
        return self._nearest(self.encoder.embed_text([words], layer=self.layer), k)

    @property
    def takes(self) -> str | None:
        """The kind of file that can be a query, or None if no file can."""
        return self.encoder.modality.file_kind

    @property
    def knows_words(self) -> bool:
        """Whether items can be searched by text."""
        return self.layer in self.encoder.layers_for_words()

    def duplicates(self, threshold: float) -> list[dict[str, Any]]:
        """Return groups of items that are linked by cosines of at least `threshold`."""
        return [
            {"similarity": round(group.similarity, 4), "items": [self.describe(place) for place in group.places]}
            for group in duplicates(self.index, threshold)
        ]

    def outliers(self, n: int) -> list[dict[str, Any]]:
        """Return the n items least similar to their nearest neighbours."""
        return [
            self.describe(each.place) | {"similarity": round(each.similarity, 4)} for each in outliers(self.index, n)
        ]

    def suspects(self, n: int) -> list[dict[str, Any]]:
        """Return at most n items with a label that their neighbours contradict, and the label these suggest."""
        if self.items.labels is None:
            raise SearchError(f"suspects need labels, got none in {self.items.name}")
        return [
            self.describe(each.place)
            | {"suggested": self.items.classes[each.suggested]}
            | {"share": round(each.share, 4), "own": round(each.own, 4)}
            for each in suspects(self.index, self.items.labels, n)
        ]

    def describe(self, place: int) -> dict[str, Any]:
        """Return the id, path, label and first text of an item, as far as the data have them."""
        items = self.items
        facts: dict[str, Any] = {"id": place}
        if items.paths is not None:
            facts["path"] = items.paths[place]
        if items.labels is not None:
            facts["label"] = items.classes[items.labels[place]] if items.labels[place] >= 0 else None
        if texts := items.texts_of(place):
            facts["text" if items.captions is None else "caption"] = texts[0]
        return facts

    def _nearest(
        self, vector: NDArray[np.float32], k: int, exclude: NDArray[np.int64] | None = None
    ) -> list[dict[str, Any]]:
        similarity, places = self.index.search(np.asarray(vector), k, exclude=exclude)
        pairs = zip(places[0].tolist(), similarity[0].tolist(), strict=True)
        return [self.describe(place) | {"similarity": round(cosine, 4)} for place, cosine in pairs]


def _hash_of(source: Any) -> str:
    """Return a hash of the path or name of a source, empty for arrays in memory."""
    if not isinstance(source, str | Path):
        return ""
    return hashlib.sha256(os.fsencode(Path(source).expanduser().resolve())).hexdigest()


def _agreed(kind: str, folder: Path) -> str:
    """Return the kind of the index in a folder; raise SearchError if another one is wanted."""
    saved = files.kind_in(folder)
    if kind not in ("auto", saved):
        raise SearchError(f"the index in {folder} must be {kind}, got {saved}: {AGAIN}")
    return saved


def _remove_superseded(folder: Path, encoder: str, index: Index) -> None:
    """Remove the indexes beside `folder` that are of earlier states of the same source, if of the same kind."""
    for other in folder.parent.glob(f"{folder.name.partition('-')[0]}-*"):
        if files.is_superseded(other, encoder, index.belongs_to, index.source):
            files.remove(other)


def reason(error: Exception) -> str:
    """Return the message of a decoder's error in one line, without the path that libsndfile adds."""
    return " ".join(str(getattr(error, "error_string", None) or error).split())[:200] or type(error).__name__
