"""Schedules of the learning rate and of the key momentum.

They are pure functions of the step, so a resumed run only needs to know its step.
"""

import math

from likewise.losses.inputs import check_number

SCHEDULES = ("cosine", "constant", "step")
MOMENTUM_SCHEDULES = ("constant", "cosine")


def factor(step: int, total: int, *, schedule: str = "cosine", warmup: float = 0.0) -> float:
    """Return the factor of the learning rate at `step` of 0 … total − 1.

    During the first w = round(warmup · total) steps it is (step + 1)/w, so that no step has a rate of zero. Then

    - cosine: ½ (1 + cos(π (step − w)/(total − w))), Loshchilov & Hutter, 2017;
    - constant: 1;
    - step: 1, from 60 % of all steps on 0.1, from 80 % on 0.01; He et al., 2020 (MoCo v1).
    """
    _check_step(step, total)
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}; got {schedule!r}")
    _check_share("warmup", warmup)
    rising = round(warmup * total)
    if step < rising:
        return (step + 1) / rising
    if schedule == "constant":
        return 1.0
    if schedule == "step":
        # Compare whole numbers, because 0.6 · total is subject to rounding.
        return 0.01 if 5 * step >= 4 * total else 0.1 if 5 * step >= 3 * total else 1.0
    return (1 + math.cos(math.pi * (step - rising) / (total - rising))) / 2


def momentum_at(step: int, total: int, start: float, schedule: str = "constant") -> float:
    """Return the momentum of the momentum copy at `step` of 0 … total − 1.

    - constant: start, He et al., 2020;
    - cosine: 1 − (1 − start) · ½ (1 + cos(π step/total)), from start towards 1, Grill et al., 2020.
    """
    _check_step(step, total)
    _check_share("momentum", start)
    if schedule not in MOMENTUM_SCHEDULES:
        raise ValueError(f"momentum schedule must be one of {', '.join(MOMENTUM_SCHEDULES)}; got {schedule!r}")
    if schedule == "constant":
        return float(start)
    return 1 - (1 - start) * (1 + math.cos(math.pi * step / total)) / 2


def _check_step(step: int, total: int) -> None:
    for name, number, least in (("total", total, 1), ("step", step, 0)):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise ValueError(f"{name} must be a whole number >= {least}, got {number!r}")
    if step >= total:
        raise ValueError(f"step must be below total, got {step} of {total}")


def _check_share(name: str, share: float) -> None:
    check_number(name, share)
    if not 0 <= share <= 1:
        raise ValueError(f"{name} must be between 0 and 1, got {share:g}")
