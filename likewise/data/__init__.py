"""Open a source of images, vectors, sequences or texts as rows of one array, with ids, labels and a test part.

from likewise import data

items = data.open("photos/")          # a folder, .npy, .npz, idx, CIFAR, Parquet, tar shards, "digits", an array
items.array                           # (n, c, h, w) uint8, or (n, f) float32
items[np.array([3, 1, 4])]            # rows by id

pairs = data.open("clipart/")         # a folder with captions.csv or metadata.csv; .npz with captions; shards
pairs.captions                        # one or more captions per item: (("a dog", "a puppy"), ("a cat",), …)

clips = data.open("recordings/")      # a folder of audio; .npz with audio and offsets; .csv and Parquet; (n, t, c)
clips.array                           # (samples, c) int16 or float32, clip i from clips.offsets[i] on
clips[np.array([3, 1, 4])]            # (3, t, c) float32, NaN after the end of the shorter ones

texts = data.open("sentences.txt")    # a line is an item; a folder of .txt; a column of a table; a list of strings
texts.main.texts(np.array([3, 1, 4])) # the texts as strings
"""

from likewise.data.items import DataError, Items, Skipped
from likewise.data.sequences import Sequences
from likewise.data.source import open  # noqa: A004

__all__ = ["DataError", "Items", "Sequences", "Skipped", "open"]
