"""A folder of pictures that changes, and an encoder that counts the rows which pass its network."""

import numpy as np
from PIL import Image

import likewise


class Counted:
    """The encoder of a run, and the number of rows that have passed its network."""

    def __init__(self, folder):
        self.encoder, self.rows = likewise.load(folder), 0
        self.encoder.backbone.register_forward_hook(self._count)

    def __deepcopy__(self, memo):  # a network is copied with its hooks to fold its norms
        return self

    def _count(self, network, arguments, output):
        self.rows += len(output)

    def embed(self, source, out):
        """Embed into a file, and return what was said, and how many rows passed the network."""
        before, said = self.rows, []
        likewise.embed(self.encoder, source, out=out, progress=False, say=said.append)
        return [words for words in said if "collapsed" not in words], self.rows - before


def picture(folder, name, number):
    """Save a picture that depends on the number alone."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((16, 16), Image.Resampling.BICUBIC).save(folder / name)


def ten_pictures(folder):
    """Fill a folder with pictures 0 to 9, called 00.png to 09.png."""
    for number in range(10):
        picture(folder, f"{number:02}.png", number)
    return folder


def add(folder):
    picture(folder, "00b.png", 20)  # in front of most
    picture(folder, "99.png", 21)


def change(folder):
    picture(folder, "04.png", 22)


def rename(folder):
    (folder / "00.png").rename(folder / "98.png")  # the first is now the last


def swap(folder):
    (folder / "00.png").rename(folder / "x")
    (folder / "01.png").rename(folder / "00.png")
    (folder / "x").rename(folder / "01.png")


def remove(folder):
    (folder / "02.png").unlink()
    (folder / "07.png").unlink()


def copy(folder):
    picture(folder, "copy.png", 3)


def nothing(folder):
    pass


def everything(folder):
    for happens in (add, change, rename, remove):
        happens(folder)


# What happens to the ten pictures, and how many are then kept, new, changed and gone.
CHANGES = {
    add: (10, 2, 0, 0),
    change: (9, 0, 1, 0),
    rename: (10, 0, 0, 0),
    swap: (10, 0, 0, 0),
    remove: (8, 0, 0, 2),
    copy: (11, 0, 0, 0),
    nothing: (10, 0, 0, 0),
    everything: (7, 2, 1, 2),
}
