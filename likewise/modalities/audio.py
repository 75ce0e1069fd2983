"""Define the audio modality: recordings of one channel, int16 or float32 in −1 to 1, at a known sampling rate."""

import io
from pathlib import Path
from wave import open as open_wave

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from likewise.data import Items
from likewise.data import open as open_data
from likewise.data.audio import EXTENSIONS, decode
from likewise.data.builtin import needed
from likewise.data.clips import check_rate
from likewise.data.items import AUDIO
from likewise.data.parts import PIECE, SIXTEEN_BITS, Ids, Part, RaggedPart
from likewise.data.spectra import log_mel, mfcc
from likewise.modalities.modality import About, Frames
from likewise.modalities.sequence import SequenceModality, ragged
from likewise.modalities.tiles import SIDE, Tiles
from likewise.recipe import Recipe, RecipeError
from likewise.views import sounds, windows

LONGEST_HEARD = 60  # seconds of a recording that the explorer plays, at most
LONGEST = 120  # seconds of an uploaded recording, at most
MOST_SAMPLES = 60_000_000  # of an uploaded recording, over all channels
LOWEST_RATE = 1_000  # samples per second that a useful spectrum needs
LOW_RATE = 12_000  # below this many samples per second, the encoder for 8 kHz is used
STEP = 0.010  # seconds from one cepstrum to the next
LOUDNESS_SHOWN = 9.0  # range of a spectrogram's colours, in nats of energy below the loudest point
# From dark blue over purple to pale yellow, with increasing lightness, so that it is readable in grey too.
GLOW = ((12, 8, 38), (87, 22, 110), (188, 55, 84), (249, 142, 9), (252, 255, 200))


class AudioModality(SequenceModality):
    name = AUDIO
    presets = windows.PRESETS | sounds.PRESETS

    def encoder_for(self, part: RaggedPart) -> tuple[str, str]:
        name = "mel_8k" if part.rate < LOW_RATE else "mel_16k"
        return name, f"audio of {part.rate:,} samples a second"

    def check_data(self, part: Part, recipe: Recipe, name: str) -> None:
        super().check_data(part, recipe, name)
        rate = ragged(part).rate
        if not rate:
            raise RecipeError(f"the audio in {name} must have a rate, got none: set it, as in --set data.rate=8000")
        if rate < LOWEST_RATE:
            raise RecipeError(
                f"audio must have at least {LOWEST_RATE:,} samples a second, got {rate:,} in {name}: "
                "slower data are series, which an .npz holds as x of shape (n, t, c)"
            )

    def default_preset(self, part: Part) -> str:
        return "sound"

    def baseline_name(self, by_frame: bool) -> str:
        return "MFCC" if by_frame else "MFCC statistics"

    def baseline(self, part: Part, ids: Ids) -> Tensor:
        part = ragged(part)
        rows = [_cepstra_statistics(part.whole(row)[:, 0], part.rate) for row in ids]
        return torch.from_numpy(np.stack(rows).astype(np.float32))

    def baseline_of_frames(self, part: Part, ids: Ids, frames: Frames, hop: int) -> Tensor:
        part, rows = ragged(part), []
        for place in np.unique(frames.places):
            starts = frames.starts[frames.places == place]
            cepstra = _cepstra(part.whole(ids[place])[:, 0], part.rate)
            rows.append(cepstra[np.minimum(np.rint(starts / (STEP * part.rate)).astype(int), len(cepstra) - 1)])
        return torch.from_numpy(np.concatenate(rows).astype(np.float32))

    file_kind = "audio"
    can_be_heard = True
    extensions = EXTENSIONS

    def open_file(self, path: Path, part: Part, about: About) -> Items:
        rate = ragged(part).rate
        samples = decode(needed("soundfile", "audio", "audio"), path, rate)
        return open_data({"audio": samples, "offsets": np.array([0, len(samples)]), "rate": rate}, progress=False)

    def measure_file(self, path: Path, name: str) -> list[tuple[int, int, str]]:
        header = needed("soundfile", "audio", "audio").info(str(path))
        check_rate(header.samplerate, name)
        samples, seconds = header.frames * header.channels, header.frames // header.samplerate
        return [(samples, MOST_SAMPLES, "samples"), (seconds, LONGEST, "seconds")]

    def sound(self, part: Part, row: int, longest: float | None = None) -> bytes | None:
        part = ragged(part)
        length = min(int(part.lengths[row]), int((LONGEST_HEARD if longest is None else longest) * part.rate))
        samples = part.windows(np.array([row]), np.zeros(1, dtype=np.int64), length)[0, :, 0]
        file = io.BytesIO()
        with open_wave(file, "wb") as wave:
            wave.setparams((1, 2, part.rate, length, "NONE", ""))
            wave.writeframes(np.rint(samples * (SIXTEEN_BITS - 1)).astype("<i2").tobytes())
        return file.getvalue()

    def draw(self, sequences: list[NDArray[np.float32]], part: RaggedPart) -> Tiles:
        """Draw spectrograms."""
        return np.stack([_spectrogram(sequence[:, 0], part.rate) for sequence in sequences])


def _cepstra(audio: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    """Return cepstra (frames, 20), one every 10 ms; long recordings are processed in pieces to save memory."""
    hop = round(STEP * rate)
    piece = PIECE // hop * hop
    # Read a little past the end of a piece, so that its last frames are complete, and drop the extra frames.
    pieces = [mfcc(audio[at : at + piece + 4 * hop], rate)[: piece // hop] for at in range(0, len(audio), piece)]
    return np.concatenate(pieces)


def _cepstra_statistics(audio: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    """Return mean and standard deviation over time of the cepstra and of their differences, (80,)."""
    cepstra = _cepstra(audio, rate)
    changes = np.diff(cepstra, axis=0, prepend=cepstra[:1])
    statistics: NDArray[np.float32] = np.concatenate(
        [part for rows in (cepstra, changes) for part in (rows.mean(axis=0), rows.std(axis=0))]
    )
    return statistics


def _spectrogram(audio: NDArray[np.float32], rate: int) -> Tiles:
    """Return a picture (side, side, 3): time to the right, pitch upwards, dark for silence."""
    mel = log_mel(audio, rate)
    loudness = np.clip((mel - mel.max()) / LOUDNESS_SHOWN + 1, 0, 1).T[::-1]  # (bands, frames)
    image = Image.fromarray((loudness * 255).astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    position = np.asarray(image).astype(np.float32)[:, :, None] / 255 * (len(GLOW) - 1)
    below = np.minimum(position.astype(np.int64), len(GLOW) - 2)[:, :, 0]
    fraction = position - below[:, :, None]
    colours = np.array(GLOW, dtype=np.float32)
    tile: Tiles = np.rint(colours[below] * (1 - fraction) + colours[below + 1] * fraction).astype(np.uint8)
    return tile
