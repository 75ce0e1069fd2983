"""What is done with the negatives before they are summed.

A policy turns the negatives of each query into one number, the logarithm of their mass:
`log Σ_j e^{s_j}` where there is none. It sees the negatives only through a few (n,) sums,
so that every policy is streamed, and symmetric where the loss is, for free.
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
        """Whether it must know the lowest score there can be."""

    def log_mass(self, negatives: Negatives, positive: Tensor) -> Tensor:
        """The logarithm of the negatives' mass, (n,), given the scores of the positives, (n,)."""


def check_policy(policy: Policy | None, similarity: str = "cosine") -> None:
    if policy is None:
        return
    if isinstance(policy, type) or not hasattr(policy, "log_mass"):
        raise ValueError(f"policy must be Hardest(k), Debiased(prior), HardWeighted(beta) or None, got {policy!r}")
    if getattr(policy, "needs_lowest", False) and similarity != "cosine":
        raise ValueError(f"{policy!r} needs similarity 'cosine', the only one with a lowest score; got {similarity!r}")


def lookup_loss(positive: Tensor, negatives: Negatives, policy: Policy | None, reduction: Reduction) -> Tensor:
    """`-log(e^{s+} / (e^{s+} + mass))` for each query, given the scores of the positives, (n,)."""
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
    """Take out the share `prior` of the negatives that are positives nobody marked.

    Chuang et al., 2020. The mean of e^s over true negatives is
    `(mean_j e^{s_j} − prior · e^{s+}) / (1 − prior)`, never below the smallest that a cosine allows.
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
        # Without negatives both are -inf, and so must their difference be.
        log_mean = torch.where(below == -torch.inf, below, above - below)
        if self.prior:
            log_mean = _without_positives(log_mean, positive, self.prior, _lowest(negatives))
        return negatives.log_count() + log_mean


def _without_positives(log_mean: Tensor, positive: Tensor, prior: float, lowest: float | Tensor) -> Tensor:
    """log max((e^log_mean − prior · e^positive) / (1 − prior), e^lowest), without leaving log space."""
    share = (math.log(prior) if prior else -math.inf) + positive - log_mean  # log of the positives' share in the mean
    all_of_it = ~(share.detach().exp() < 1)  # also where there are no negatives: share is then inf or NaN
    debiased = log_mean + torch.log1p(-share.masked_fill(all_of_it, -1).exp()) - math.log1p(-prior)
    floor = lowest if isinstance(lowest, Tensor) else debiased.new_full((), lowest)
    return torch.where(all_of_it, floor, torch.maximum(debiased, floor))


def _check_prior(name: str, prior: float) -> None:
    check_number(f"{name}'s prior", prior)
    if not 0 <= prior < 1:
        raise ValueError(f"{name} needs a prior in [0, 1), got {prior:g}")


def _lowest(negatives: Negatives) -> float | Tensor:
    assert negatives.lowest is not None, "check_policy lets such a policy meet cosines only"
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
