"""What runs and exports of 0.1.0 say of their data, in the terms of today."""

from typing import Any

from likewise.data.items import AUDIO, SERIES

AUDIO_RATE = 4000  # samples per second from which on 0.1.0 took one channel for sound


def migrated(about: Any) -> Any:
    """Add the modality to what 0.1.0 wrote, which knew only of images, vectors, sequences and text."""
    if not isinstance(about, dict) or "modality" in about or "kind" not in about:
        return about
    kind, rate, channels = about["kind"], about.get("rate", 0), about.get("channels")
    if kind == "sequence":
        is_audio = channels == 1 and type(rate) is int and rate >= AUDIO_RATE
        kind = AUDIO if is_audio else SERIES
    return about | {"modality": kind}
