"""How long the parts of a run take on this machine, and how many steps fit into the time that a command has.

The number of steps is chosen once, before the first step, and written into the recipe. From then on nothing depends on
a clock: the schedule, a repetition and a resumed run only know the number.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from likewise import clock
from likewise.modalities.modality import Choice
from likewise.recipe import RecipeError, Training

SPARE = 0.03  # share of the time that is left free, because a machine is not equally fast all the time
TRIAL, LONGEST_TRIAL = 0.02, 6.0  # share of the time, and seconds, in which steps are taken on trial
FEWEST_TRIED, MOST_TRIED = 3, 60  # steps
WANTED_TRIED, PATIENCE = 12, 2.5  # steps that are wanted even if the trial then takes so many times as long
MOST_STEPS = 2**40  # even if the clock is so coarse that a step seems to take no time
USUAL_MINUTES = 10.0  # of a run for which the user gave no length
FEW_STEPS = 1000  # steps that a run may have even if they are more than training.epochs
# Seconds for what is not measured: building the learner again, opening the files of metrics, the map and the pictures
# of the report, and the end of the process.
UNMEASURED = 5.0


@dataclass(frozen=True)
class Pace:
    """How many seconds each part of a run takes."""

    step: float
    log: float  # a row of metrics
    evaluation: float  # an evaluation during training
    checkpoint: float
    report: float  # embedding and measuring the items of the report

    def seconds(self, steps: int, options: Training) -> float:
        """Return how long a run of `steps` steps takes from its first step to the end of its report."""

        def times(every: int) -> int:
            return math.ceil(steps / every)  # the last step counts, whatever its number

        return (
            steps * self.step
            + times(options.log_every) * self.log
            + times(options.evaluate_every) * self.evaluation
            + (times(options.checkpoint_every) + 1) * self.checkpoint  # the weights are written at the end
            + self.report
            + UNMEASURED
        )

    def steps_within(self, seconds: float, options: Training) -> int:
        """Return the largest number of steps of a run that takes at most `seconds`; 0 if not even one fits."""
        fits, too_many = 0, 1
        while self.seconds(too_many, options) <= seconds and too_many < MOST_STEPS:
            fits, too_many = too_many, 2 * too_many
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            if self.seconds(middle, options) <= seconds:
                fits = middle
            else:
                too_many = middle
        return fits

    @property
    def speed(self) -> str:
        """Return the speed as text, as in `7.1 steps a second`."""
        rate = 1 / max(self.step, 1e-9)
        return f"{rate:,.1f} steps a second" if rate >= 1 else f"{rate:.2g} steps a second"


@dataclass(frozen=True)
class Limit:
    """The time that the user gave a whole command."""

    minutes: float
    began: float  # when the command began, by `clock.now`

    @property
    def seconds(self) -> float:
        return 60 * self.minutes

    @property
    def trial(self) -> float:
        """Return for how many seconds steps are taken on trial."""
        return min(LONGEST_TRIAL, TRIAL * self.seconds)

    @property
    def left(self) -> float:
        """Return how many seconds may still be planned with."""
        return (1 - SPARE) * self.seconds - (clock.now() - self.began)

    @property
    def in_words(self) -> str:
        return f"{self.minutes:g} minute{'s' * (self.minutes != 1)}"

    @property
    def note(self) -> str:
        """Return what the plan says about the length of the run."""
        return f", chosen so that the whole command takes {self.in_words}"

    def choice(self, pace: Pace, left: float, options: Training, per_epoch: int) -> Choice:
        """Return the number of steps that fit into the `left` seconds, and the reason."""
        steps = pace.steps_within(left, options)
        if steps < 1:
            least = math.ceil(10 * (self.seconds - left + pace.seconds(1, options)) / 60) / 10
            raise RecipeError(
                f"minutes must leave time for a step besides starting, evaluation and report, which takes at least "
                f"{least:g} for this run on this machine, got {self.minutes:g}"
            )
        return Choice("training.steps", steps, f"{self.in_words} at {pace.speed}")


@dataclass(frozen=True)
class UsualLimit(Limit):
    """The length of a run for which the user gave none: about ten minutes, or less if there are few items."""

    @property
    def note(self) -> str:
        return ""

    @property
    def left(self) -> float:
        """Return the whole time: opening the data, which may take long the first time, does not shorten a run."""
        return (1 - SPARE) * self.seconds

    def choice(self, pace: Pace, left: float, options: Training, per_epoch: int) -> Choice:
        """Return as many steps as fit into the time, but at most training.epochs, or 1,000 steps if that is more."""
        fitting, most = max(1, pace.steps_within(left, options)), max(FEW_STEPS, options.epochs * per_epoch)
        if fitting < most:
            why = f"about {self.in_words} on this machine"
        elif most == FEW_STEPS:
            why = f"{most / per_epoch:,.0f} passes over few items"
        else:
            why = f"{options.epochs} epochs"
        other = "--minutes, --epochs or --steps choose another length"
        return Choice("training.steps", min(fitting, most), f"{why}; {other}")


def steady(times: Sequence[float]) -> float:
    """Return how long a step takes, from the durations of steps taken on trial, the first ones included.

    The first third only warms up: memory is allocated, and the readers are still ahead. Of the rest, it is the median,
    or the mean without the slowest tenth if that is longer, as with readers that deliver two batches at once.
    """
    rest = sorted(times[len(times) // 3 :])
    return max(statistics.median(rest), statistics.fmean(rest[: math.ceil(0.9 * len(rest))]))


def is_enough(steps: int, seconds: float, trial: float) -> bool:
    """Return whether a trial that is to take `trial` seconds can end after these steps and seconds."""
    return steps >= FEWEST_TRIED and seconds > (trial if steps >= WANTED_TRIED else PATIENCE * trial)


def timed(action: Callable[[], object]) -> float:
    """Return how many seconds an action takes."""
    began = clock.now()
    action()
    return clock.now() - began
