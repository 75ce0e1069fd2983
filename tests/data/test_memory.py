"""What would not fit into memory is refused before it is read, with both sizes in the sentence."""

import pytest

from likewise import data
from likewise.data import memory
from likewise.data.memory import check_fits


@pytest.mark.parametrize(
    ("needed", "free", "sizes"),
    [
        (38 << 30, 20 << 30, ("38 GiB", "20 GiB")),
        (3 << 29, 1 << 20, ("1.5 GiB", "1.0 MiB")),
        (1025, 1024, ("1.0 KiB", "1.0 KiB")),
        (8, 0, ("8 bytes", "0 bytes")),
        (2 << 50, 1 << 40, ("2,048 TiB", "1.0 TiB")),
    ],
)
def test_what_does_not_fit_is_refused(monkeypatch, needed, free, sizes):
    monkeypatch.setattr(memory, "free_memory", lambda: free)
    with pytest.raises(data.DataError) as refused:
        check_fits(needed, "x.csv")
    assert str(refused.value) == f"x.csv would take about {sizes[0]} of memory, and {sizes[1]} are free"


def test_what_fits_is_not():
    check_fits(1000, "x.csv")


@pytest.mark.skipif(memory.free_memory() is None, reason="this system does not say how much memory is free")
def test_this_machine_has_less_than_a_pebibyte():
    with pytest.raises(data.DataError, match=r"^x\.csv would take about 1,024 TiB of memory, and .* are free$"):
        check_fits(1 << 50, "x.csv")


def test_a_system_that_does_not_say_is_trusted(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    check_fits(1 << 50, "x.csv")
