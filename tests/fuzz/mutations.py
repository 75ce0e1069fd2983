"""Damage to valid bytes: flipped, cut, moved, lengths and numbers changed; the same random generator, the same damage.

Formats that carry checksums are damaged below them and sealed again, so that what reads the content sees the damage.
"""

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from random import Random

WHOLE = (0, 1, 2, 127, 128, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)
WRITTEN = (
    "-1",
    "0",
    "1",
    "65536",
    "2147483648",
    "99999999999999999999",
    "1e309",
    "-1e309",
    "nan",
    "0.5",
    "''",
    "[]",
    "{}",
    "",
)
HEADER = 200  # bytes: damage there says more than damage among pixels

Mutation = Callable[[Random, bytearray], bytearray]


def mutated(rng: Random, content: bytes) -> bytes:
    """One to four kinds of damage after each other."""
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        found = rng.choice(MUTATIONS)(rng, found)
    return bytes(found)


def _place(rng: Random, content: bytearray) -> int:
    return rng.randrange(max(1, min(len(content), HEADER if rng.random() < 0.6 else len(content))))


def _flipped_bits(rng: Random, content: bytearray) -> bytearray:
    for _ in range(rng.choice((1, 2, 8))):
        if content:
            content[_place(rng, content)] ^= 1 << rng.randrange(8)
    return content


def _other_bytes(rng: Random, content: bytearray) -> bytearray:
    for _ in range(rng.choice((1, 4, 32))):
        if content:
            content[_place(rng, content)] = rng.randrange(256)
    return content


def _cut(rng: Random, content: bytearray) -> bytearray:
    return content[: _place(rng, content)] if rng.random() < 0.5 else content[: -1 - rng.randrange(16)]


def _removed(rng: Random, content: bytearray) -> bytearray:
    start = _place(rng, content)
    del content[start : start + rng.choice((1, 4, 64))]
    return content


def _repeated(rng: Random, content: bytearray) -> bytearray:
    start = _place(rng, content)
    part = content[start : start + rng.choice((1, 8, 200))]
    return content[:start] + part * rng.choice((2, 50)) + content[start:]


def _whole_number(rng: Random, content: bytearray) -> bytearray:
    """A length, an offset or a count, of two, four or eight bytes, with either end first."""
    size, order = rng.choice((2, 4, 8)), rng.choice(("little", "big"))
    start = _place(rng, content)
    if start + size <= len(content):
        content[start : start + size] = (rng.choice(WHOLE) % 256**size).to_bytes(size, order)
    return content


def _written_number(rng: Random, content: bytearray) -> bytearray:
    places = list(re.finditer(rb"-?\d+(\.\d+)?", bytes(content[:5000])))
    if not places:
        return _whole_number(rng, content)
    start, end = rng.choice(places).span()
    return content[:start] + rng.choice(WRITTEN).encode() + content[end:]


def _nested(rng: Random, content: bytearray) -> bytearray:
    start = _place(rng, content)
    return content[:start] + rng.choice((b"[", b"{", b'{"a":', b"a.", b'"', b"\\")) * 3000 + content[start:]


MUTATIONS: tuple[Mutation, ...] = (
    *(_flipped_bits, _other_bytes, _cut, _removed, _repeated, _whole_number, _whole_number, _written_number, _nested),
)


def archive(rng: Random, content: bytes) -> bytes:
    """A damaged .npz, or one that is whole with a damaged array in it."""
    if rng.random() < 0.4:
        return mutated(rng, content)
    with zipfile.ZipFile(io.BytesIO(content)) as before:
        members = {name: before.read(name) for name in before.namelist()}
    chosen = rng.choice(sorted(members))
    members[chosen] = mutated(rng, members[chosen])
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as after:
        for name, member in members.items():
            after.writestr(name, member)
    return made.getvalue()


def png(rng: Random, content: bytes) -> bytes:
    """A damaged PNG, or one with a damaged chunk whose checksum is right."""
    if rng.random() < 0.4:
        return mutated(rng, content)
    chunks, at = [], 8
    while at + 8 <= len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        chunks.append((content[at + 4 : at + 8], content[at + 8 : at + 8 + length]))
        at += 12 + length
    chosen = rng.randrange(len(chunks))
    chunks[chosen] = (chunks[chosen][0], mutated(rng, chunks[chosen][1]))
    sealed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return content[:8] + b"".join(sealed)
