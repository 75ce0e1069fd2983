"""The digests by which rows are recognised later."""

import numpy as np
from PIL import Image

from likewise import data
from likewise.data.parts import DIGEST, Part, RaggedPart


def ragged(array, *lengths):
    offsets = np.cumsum([0, *lengths])
    return RaggedPart("audio", array, offsets=offsets, rate=8000, channels=("",))


def test_rows_of_equal_content_have_equal_digests_wherever_they_are_stored(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (600, 3, 5, 5), dtype=np.uint8)
    pixels[17] = pixels[4]
    expected = Part("image", pixels).digests(np.arange(600))
    assert expected.dtype == DIGEST
    assert len(np.unique(expected)) == 599
    assert expected[17] == expected[4]
    np.save(tmp_path / "x.npy", pixels)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    otherwise = np.asfortranarray(pixels)
    chosen = np.array([599, 4, 17, 0])
    for array in (mapped, otherwise):
        assert np.array_equal(Part("image", array).digests(chosen), expected[chosen])


def test_sequences_of_equal_content_have_equal_digests_wherever_they_begin():
    audio = np.random.default_rng(0).integers(-99, 99, (30, 1)).astype(np.int16)
    first = ragged(audio, 10, 5, 15).digests(np.arange(3))
    later = ragged(np.concatenate([audio[15:], audio[:10]]), 15, 10).digests(np.arange(2))
    assert later.tolist() == [first[2], first[0]]


def test_silence_differs_by_its_length_type_and_channels():
    """All of it is zeros, and some of it has the same number of bytes."""
    digests = [
        ragged(np.zeros((samples, channels), dtype=kind), samples).digests(np.arange(1))[0]
        for samples, channels, kind in ((8, 1, np.int16), (16, 1, np.int16), (8, 1, np.float32), (8, 2, np.int16))
    ]
    assert len(set(digests)) == 4


def test_a_picture_in_a_folder_has_the_digest_that_it_has_in_an_array(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    for number, each in enumerate(pixels):
        Image.fromarray(each).save(tmp_path / f"{number}.png")
    opened = [data.open(source, size=8, progress=False).main.digests(np.arange(3)) for source in (tmp_path, pixels)]
    assert np.array_equal(*opened)
