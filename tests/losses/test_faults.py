"""Faults found in well-known implementations, each by its name. None of them may happen here."""

import json
import math
import os
import subprocess
import sys

import pytest
import torch

from likewise import losses
from tests.losses import slow
from tests.losses.conftest import rows


def test_fault_1_keys_enqueued_before_scoring():
    """The positive sits among its negatives: aligned orthonormal pairs then give ln 2. By its id it does not."""
    eye = torch.eye(8)
    ids = torch.arange(8)
    queue = eye.clone()  # this step's keys are already in it
    by_id = losses.info_nce(eye, eye, queue, temperature=0.05, query_ids=ids, key_ids=ids)
    assert by_id.item() == pytest.approx(0, abs=1e-7)
    without = losses.info_nce(eye, eye, queue, temperature=0.05)
    assert without.item() == pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.parametrize("chunks", [1, 2, 4, 8])
def test_fault_5_accumulated_clip_has_the_temperature_gradient_right(chunks):
    """Embeddings cached in chunks, one loss over all of them: the temperature is counted once, not once a chunk."""
    images, texts = rows(16, 6, grad=False), rows(16, 6, seed=1, grad=False)
    weight = rows(6, 5, seed=2)
    loss = losses.SymmetricInfoNCE(temperature=0.3, learnable=True).double()
    cached = [(chunk @ weight).detach().requires_grad_() for chunk in images.chunk(chunks)]
    loss(torch.cat(cached), texts @ weight.detach()).backward()
    (d_weight,) = torch.autograd.grad(
        [chunk @ weight for chunk in images.chunk(chunks)], [weight], [chunk.grad for chunk in cached]
    )

    log_temperature = loss.log_temperature.detach().clone().requires_grad_()
    whole = slow.symmetric_info_nce(images @ weight, texts @ weight.detach(), temperature=log_temperature.exp()).mean()
    expected = torch.autograd.grad(whole, [log_temperature, weight])
    torch.testing.assert_close((loss.log_temperature.grad, d_weight), expected, rtol=1e-10, atol=1e-10)


PEAK = """
import json, os, re, sys, torch
from likewise import losses

def resident(which):
    return int(re.search(which + r":\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024

def peak(warm_up, call):
    a, b = torch.randn({n}, 64, requires_grad=True), torch.randn({n}, 64, requires_grad=True)
    keys = torch.randn(2 * {n}, 64)
    names = {{"torch": torch, "losses": losses, "a": a, "b": b, "keys": keys}}
    eval(warm_up, names).backward()
    open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far
    before = resident("VmRSS")
    eval(call, names).backward()
    return resident("VmHWM") - before

# Each call is measured in a fork, so that it cannot use memory which another one has freed.
for warm_up, call in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        print(peak(warm_up, call), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, call
"""


@pytest.fixture(scope="module")
def peak_mebibytes():
    """How far the resident size rises during one forward and backward of each call, in processes of their own."""
    calls = [(with_rows(call, 64), with_rows(call, N)) for call in (*CALLS.values(), HELD)]
    code = PEAK.format(n=N)
    run = subprocess.run([sys.executable, "-c", code], input=json.dumps(calls), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return dict(zip((*CALLS, HELD), map(float, run.stdout.split()), strict=True))


def with_rows(call: str, m: int) -> str:
    return call.replace(":m]", f":{m}]").replace("(m)", f"({m})").replace("2 * m", f"2 * {m}")


N = 6000  # pairs
HELD = "torch.logsumexp(a[:m] @ b[:m].T, dim=1).sum()"  # has its whole matrix in memory
CALLS = {
    "nt_xent": "losses.nt_xent(a[:m], b[:m])",
    "nt_xent, ids": "losses.nt_xent(a[:m], b[:m], ids=torch.arange(m))",
    "nt_xent, hardest": "losses.nt_xent(a[:m], b[:m], policy=losses.Hardest(4))",
    "symmetric": "losses.symmetric_info_nce(a[:m], b[:m])",
    "symmetric, cold": "losses.symmetric_info_nce(a[:m], b[:m], temperature=0.01)",
    "queue": "losses.info_nce(a[:m], b[:m], keys[:2 * m])",
    "shared": "losses.info_nce(a[:m], b[:m], b[:m], similarity='dot')",
    "sigmoid": "losses.sigmoid(a[:m], b[:m])",
    "sup_con": "losses.sup_con(a[:m], torch.arange(m) % 10)",
}
needs_proc = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="peak memory is read from /proc"
)


@needs_proc
@pytest.mark.parametrize("call", CALLS)
def test_fault_6_no_loss_holds_its_matrix_let_alone_a_cube(peak_mebibytes, call):
    """6,000 pairs: one (n, n) float32 matrix is 137 MiB, NT-Xent's (2n, 2n) 549 MiB. None of it may appear."""
    assert peak_mebibytes[call] < 100


@needs_proc
def test_the_measure_of_fault_6_sees_a_matrix_that_is_held(peak_mebibytes):
    assert peak_mebibytes[HELD] > 137


@pytest.mark.parametrize("temperature", [0.005, 0.01])
def test_fault_7_low_temperatures_give_no_nan_and_no_zero_gradient(temperature):
    a, b = rows(600, 16, dtype=torch.float32), rows(600, 16, seed=1, dtype=torch.float32)
    for loss in (losses.nt_xent, losses.info_nce, losses.symmetric_info_nce):
        value = loss(a, b, temperature=temperature)
        d_a, d_b = torch.autograd.grad(value, [a, b])
        assert value.isfinite()
        assert (d_a.norm(dim=1) > 0).all()
        assert (d_b.norm(dim=1) > 0).float().mean() > 0.5
        assert d_a.isfinite().all()
        assert d_b.isfinite().all()


def test_fault_13_an_older_key_of_the_same_item_is_no_negative():
    """A queue longer than the data set holds each item's keys of earlier epochs: by id they drop out."""
    query, positive = rows(4, 6), rows(4, 6, seed=1)
    queue, queue_ids = rows(12, 6, seed=2, grad=False), torch.arange(4).repeat(3)
    loss = losses.info_nce(query, positive, queue, query_ids=torch.arange(4), key_ids=queue_ids, reduction="none")
    for i in range(4):
        others = queue[queue_ids != i]
        alone = losses.info_nce(query[i : i + 1], positive[i : i + 1], others)
        torch.testing.assert_close(loss[i], alone)


def test_fault_14_the_positive_is_the_partner_and_is_divided_by_the_temperature():
    """Row i of `a` belongs to row i of `b`, whatever their neighbours; s+ is a score like any other."""
    eye = torch.eye(6, dtype=torch.float64)
    assert losses.nt_xent(eye, eye, temperature=0.02).item() == pytest.approx(0, abs=1e-6)
    # Paired as neighbours of [a; b] instead, rows 0 and 1 would have to agree: loss 1/τ.
    neighbours = eye.repeat_interleave(2, dim=0)[:6]
    assert losses.nt_xent(neighbours, eye, temperature=0.02).item() > 1
    # Undivided, s+ would be 1 and the loss of aligned pairs log(1 + k e^{−1}) at every temperature.
    values = [losses.info_nce(eye, eye, temperature=t).item() for t in (0.1, 0.5, 1.0)]
    assert values == pytest.approx([math.log1p(5 * math.exp(-1 / t)) for t in (0.1, 0.5, 1.0)])
