"""Policies: how the negatives of a query are selected or weighted.

A policy turns the negatives of each query into one number, the logarithm of their mass. Without
a policy that is `log Σ_j e^{s_j}`. A policy sees the negatives only through a few (n,) sums, so
every policy works without the whole score matrix, and with every loss.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from likewise.losses.inputs import Reduction, check_number, reduce
from likewise.losses.negatives import Negatives
from likewise.losses.streamed import exact_softplus
from likewise.recipe import RecipeError, check_choice


class Policy(Protocol):
    """Hardest, Debiased or HardWeighted."""

    @property
    def needs_lowest(self) -> bool:
        """Whether it must know the lowest possible score."""

    def log_mass(self, negatives: Negatives, positive: Tensor) -> Tensor:
        """Return the logarithm of the negatives' mass, (n,), given the scores of the positives, (n,)."""


def check_policy(policy: Policy | None, similarity: str = "cosine") -> None:
    if policy is None:
        return
    if isinstance(policy, type) or not hasattr(policy, "log_mass"):
        raise ValueError(f"policy must be Hardest(k), Debiased(prior), HardWeighted(beta) or None, got {policy!r}")
    if getattr(policy, "needs_lowest", False) and similarity != "cosine":
        raise ValueError(f"{policy!r} needs similarity 'cosine', the only one with a lowest score; got {similarity!r}")


def lookup_loss(positive: Tensor, negatives: Negatives, policy: Policy | None, reduction: Reduction) -> Tensor:
    """Return the reduced `-log(e^{s+} / (e^{s+} + mass))` of the queries, given the scores of the positives, (n,)."""
    log_mass = negatives.log_sum() if policy is None else policy.log_mass(negatives, positive)
    return reduce(exact_softplus(log_mass - positive), reduction, negatives.valid)


@dataclass(frozen=True)
class Hardest:
    """Only the k most similar negatives count."""

    k: int
    needs_lowest = False

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise ValueError(f"Hardest needs a whole number k >= 1, got {self.k!r}")

    def log_mass(self, negatives: Negatives, positive: Tensor) -> Tensor:
        return negatives.log_sum_of_hardest(self.k)


@dataclass(frozen=True)
class Debiased:
    """Correct for the share `prior` of the negatives that are really positives without a label.

    Chuang et al., 2020. The mean of e^s over true negatives is estimated as
    `(mean_j e^{s_j} − prior · e^{s+}) / (1 − prior)`, and at least the smallest value that a cosine allows.
    """

    prior: float
    needs_lowest = True

    def __post_init__(self) -> None:
        _check_prior("Debiased", self.prior)

    def log_mass(self, negatives: Negatives, positive: Tensor) -> Tensor:
        count = negatives.log_count()
        return count + _without_positives(negatives.log_sum() - count, positive, self.prior, _lowest(negatives))


@dataclass(frozen=True)
class HardWeighted:
    """Weigh each negative by e^{beta · s}: the harder, the more it counts.

    Robinson et al., 2021: `log k + LSE((1 + beta) s) − LSE(beta s)`, with the gradient through
    the weights; with a prior, that mean is debiased as in `Debiased`.
    """

    beta: float
    prior: float = 0.0

    def __post_init__(self) -> None:
        check_number("HardWeighted's beta", self.beta)
        if not 0 <= self.beta < math.inf:
            raise ValueError(f"HardWeighted needs beta >= 0, got {self.beta:g}")
        _check_prior("HardWeighted", self.prior)

    @property
    def needs_lowest(self) -> bool:
        return self.prior > 0

    def log_mass(self, negatives: Negatives, positive: Tensor) -> Tensor:
        above, below = negatives.log_sum(1 + self.beta), negatives.log_sum(self.beta)
        # Without negatives both are -inf. Their difference would be NaN, but the log-mean is -inf.
        log_mean = torch.where(below == -torch.inf, below, above - below)
        if self.prior:
            log_mean = _without_positives(log_mean, positive, self.prior, _lowest(negatives))
        return negatives.log_count() + log_mean


def _without_positives(log_mean: Tensor, positive: Tensor, prior: float, lowest: float | Tensor) -> Tensor:
    """Return log max((e^log_mean − prior · e^positive) / (1 − prior), e^lowest), computed in log space."""
    # log of the positives' share in the mean
    log_share = (math.log(prior) if prior else -math.inf) + positive - log_mean
    nothing_left = ~(log_share.detach().exp() < 1)  # also without negatives: log_share is then inf or NaN
    debiased = log_mean + torch.log1p(-log_share.masked_fill(nothing_left, -1).exp()) - math.log1p(-prior)
    floor = lowest if isinstance(lowest, Tensor) else debiased.new_full((), lowest)
    return torch.where(nothing_left, floor, torch.maximum(debiased, floor))


def _check_prior(name: str, prior: float) -> None:
    check_number(f"{name}'s prior", prior)
    if not 0 <= prior < 1:
        raise ValueError(f"{name} needs a prior in [0, 1), got {prior:g}")


def _lowest(negatives: Negatives) -> float | Tensor:
    assert negatives.lowest is not None, "check_policy allows this policy only with cosine similarity"
    return negatives.lowest


def parse_policy(text: str) -> Policy | None:
    """Return the policy that a recipe names: `hardest:16`, `debiased:0.1`, `hard_weighted:0.5` or `…:0.5:0.1`."""
    if not text:
        return None
    name, *numbers = text.split(":")
    check_choice("loss.policy", name, ("hardest", "debiased", "hard_weighted"))
    try:
        if name == "hardest":
            return Hardest(*map(int, numbers))
        return (Debiased if name == "debiased" else HardWeighted)(*map(float, numbers))
    except (TypeError, ValueError) as error:
        raise RecipeError(f"loss.policy must be like hardest:16 or debiased:0.1, got {text!r} ({error})") from None
