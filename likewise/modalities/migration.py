"""Convert the description of the data in runs and exports of version 0.1.0 to the present format."""

from typing import Any

from likewise.data.items import AUDIO, SERIES

AUDIO_RATE = 4000  # samples per second from which version 0.1.0 treated one channel as audio


def migrated(about: Any) -> Any:
    """Return a description with its modality, which 0.1.0 did not write; it only knew `kind`."""
    if not isinstance(about, dict) or "modality" in about or "kind" not in about:
        return about
    kind, rate, channels = about["kind"], about.get("rate", 0), about.get("channels")
    if kind == "sequence":
        is_audio = channels == 1 and type(rate) is int and rate >= AUDIO_RATE
        kind = AUDIO if is_audio else SERIES
    return about | {"modality": kind}
