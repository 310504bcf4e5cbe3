"""A scaling law of finished runs, and what a further size would reach.

    python -m recipes.study --config=recipes/configs/study.py:scaling,FOLDER
    python -m tools.scaling_law runs/FOLDER-scaling
    python -m tools.scaling_law runs/FOLDER-scaling --hold_out=1
    python -m tools.scaling_law runs/FOLDER-scaling --predict=1e-4

Fits E = a (C + d)^-b + c of "Scaling Vision Transformers" (2106.04560). E is
the error, 1 less the accuracy of the last evaluation, and C the exaFLOPs of
training: 6 for each multiply-accumulate of `keras_vit.cost` and image seen. c
is the error that no compute removes; d bounds that of models of little compute.
Runs that differ in their seed alone are averaged. The law is that of the
frontier: a run is left out if another of no more compute has an error that is
lower by more than twice the standard error.

SciPy's `least_squares` fits the logarithm of the error, each weighted by its
standard error: that of drawing the evaluation images and of the seeds, enlarged
by the scatter about the law. Intervals of 95 % are quantiles of a parametric
bootstrap: the fits of errors drawn about the law. That of a prediction includes
the standard error of the predicted run. --hold_out=1 leaves out the run of the
most compute, and predicts it.
"""

import collections
import dataclasses
import pathlib
import sys

import numpy as np

from keras_vit_cli import command
from recipes import uncertainty
from tools import cost_figure, pictures, runs

NUM_SAMPLES = 300
LEAST = 5  # points, of four parameters
# Of b: beyond them a law is a constant, or no power.
EXPONENTS = 0.01, 5.0
# Groups of points, and their marks in the figure, in which the law is blue.
FITTED, HELD_OUT = "runs on the frontier", "held out"
LEFT_OUT = "left out: not on the frontier"
MARKS = {
    FITTED: dict(color="k", marker="o"),
    LEFT_OUT: dict(color="#9a9a9a", marker="x"),
    HELD_OUT: dict(color="#c62828", marker="*"),
}
BLUE = "#1f5fbf"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The runs of one model and training.

    Attributes:
        compute: exaFLOPs.
        error: Share of wrong answers, the mean of the seeds.
        standard_error: That of `error`; NaN if unknown.
        group: A key of `MARKS`.
    """

    name: str
    compute: float
    error: float
    standard_error: float
    group: str = FITTED


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Law:
    """A fit, and those of errors drawn about it.

    Attributes:
        unit: exaFLOPs, the unit of compute of the parameters here.
        best: log(a), b, c and d, with compute in `unit`.
        samples: The same of each sample, `[S, 4]`.
        noise: Standard deviation of the logarithm of a run's error.
    """

    unit: float
    best: np.ndarray
    samples: np.ndarray
    noise: float

    def parameters(self) -> dict[str, tuple[float, float, float]]:
        """Return name -> (value, low, high), with compute in exaFLOPs."""
        log_a, b, c, d = np.vstack([self.best, self.samples]).T
        c, d = (np.where(x < 1e-6, 0, x) for x in (c, d))  # at the bound
        columns = dict(
            a=np.exp(log_a) * self.unit**b, b=b, c=c, d=d * self.unit
        )
        return {k: (x[0], *_interval(x[1:])) for k, x in columns.items()}

    def error(self, compute, noise: bool = False):
        """Return the error at some compute, and the ends of its interval.

        Args:
            compute: exaFLOPs, a number or an array.
            noise: Whether it is that of a run, measured as the others.
        """
        x = np.asarray(compute) / self.unit
        drawn = np.array([_law(each, x) for each in self.samples])
        if noise:
            rng = np.random.default_rng(1)
            normal = rng.normal(size=(len(drawn), *[1] * x.ndim))
            drawn = drawn * np.exp(self.noise * normal)
        return _law(self.best, x), *_interval(drawn)


@command.entry
def main(arguments: list[str]) -> int:
    """Print the law and its predictions, and draw it."""
    parser = command.Parser(description=__doc__)
    add = parser.add_argument
    add("workdir", nargs="+", type=pathlib.Path)
    add("--dataset", default="", help="that of the runs, if they have several")
    asked = "default: the next doubling"
    add("--predict", type=float, metavar="EXAFLOPS", help=asked)
    held = "runs to predict, not to fit"
    add("--hold_out", type=command.natural, default=0, help=held)
    add("--output", default="scaling_law.png", type=pathlib.Path)
    flags = parser.parse_args(arguments)
    if flags.predict is not None and not 0 < flags.predict < np.inf:
        raise ValueError(
            f"--predict must be positive exaFLOPs. Received: {flags.predict}"
        )
    points = points_of(runs.find(*flags.workdir), flags.dataset)
    if flags.hold_out >= len(points):
        raise ValueError(
            f"--hold_out must be below the {len(points)} points. Received: "
            f"{flags.hold_out}"
        )
    points = grouped(points, flags.hold_out)
    law = fit([p for p in points if p.group == FITTED], NUM_SAMPLES)
    further = flags.predict or 2 * points[-1].compute
    print(report(law, points, further))
    pictures.save(draw(law, points, further), flags.output)
    return 0


def points_of(found: list[runs.Run], dataset: str = "") -> list[Point]:
    """Return the points of runs, in the order of their compute.

    `dataset` is the name of the data set; "" if all have the same.
    """
    found = [run for run in found if dataset in ("", run.dataset)]
    datasets = sorted({run.dataset for run in found})
    if len(datasets) != 1:
        raise ValueError(
            "The runs must be finished ones of one data set; --dataset chooses "
            f"one. Received: {len(found)} runs of {datasets}"
        )
    groups = collections.defaultdict(list)
    for run, compute in cost_figure.costs_of(found):
        key = (run.model, run.pretraining, compute, str(run.setting))
        groups[key].append(run)
    points = []
    for (model, _, compute, _), members in groups.items():
        accuracies = [run.accuracy / 100 for run in members]
        folder = members[0].folder
        _, derived = runs.config_of(folder)
        images = derived.get("eval_images", 0)
        name = f"{model} {folder.name}"
        if folder.name.startswith("seed_"):
            name = folder.parent.name
        points.append(
            Point(
                name=name,
                compute=compute,
                error=1 - float(np.mean(accuracies)),
                standard_error=uncertainty.standard_error(accuracies, images),
            )
        )
    return sorted(points, key=lambda point: point.compute)


def grouped(points: list[Point], hold_out: int) -> list[Point]:
    """Return the points, in the order of their compute, with their groups.

    The last `hold_out` are held out.
    """
    count = len(points) - hold_out
    found = []
    for i, point in enumerate(points):
        group = HELD_OUT
        if i < count:
            beaten = any(_beats(other, point) for other in points[:count])
            group = LEFT_OUT if beaten else FITTED
        found.append(dataclasses.replace(point, group=group))
    return found


def _beats(other, point):
    """Return whether another point of no more compute is clearly better."""
    results = [(p.error, p.standard_error) for p in (point, other)]
    is_lower = other.compute <= point.compute and other.error < point.error
    return is_lower and uncertainty.differ(*results)


def fit(points: list[Point], num_samples: int) -> Law:
    """Fit the law, and that of errors drawn about it, if points can show it."""
    _check(points)
    compute = np.array([point.compute for point in points])
    errors = np.array([point.error for point in points])
    unit = float(np.exp(np.mean(np.log(compute))))
    x, y = compute / unit, np.log(errors)
    sigma = np.array([p.standard_error for p in points]) / errors
    sigma = np.where(np.isfinite(sigma), sigma, np.nanmean([*sigma, 1e-2]))
    best = _fitted(x, y, sigma)
    fitted = np.log(_law(best, x))
    freedom = max(len(points) - 4, 1)
    scatter = np.sqrt(np.sum(((y - fitted) / sigma) ** 2) / freedom)
    sigma = sigma * max(1.0, scatter)
    rng = np.random.default_rng(0)
    samples = [
        _fitted(x, fitted + sigma * rng.normal(size=len(x)), sigma, best)
        for _ in range(num_samples)
    ]
    noise = float(np.median(sigma))
    return Law(unit=unit, best=best, samples=np.array(samples), noise=noise)


def _check(points):
    computes = {point.compute for point in points}
    if len(computes) < LEAST:
        raise ValueError(
            f"A law of four parameters needs at least {LEAST} runs of "
            f"different compute on the frontier. Received: {len(computes)}"
        )
    if max(computes) < 4 * min(computes):
        raise ValueError(
            "The compute of the runs must differ by at least a factor of 4. "
            f"Received: {min(computes):.3g} to {max(computes):.3g} exaFLOPs"
        )
    if not all(0 < point.error < 1 for point in points):
        raise ValueError(
            "Errors must be above 0 and below 1, since their logarithms are "
            f"fitted. Received: {[point.error for point in points]}"
        )
    ordered = sorted(points, key=lambda point: point.compute)
    ends = [(p.error, p.standard_error) for p in (ordered[0], ordered[-1])]
    falls = uncertainty.differ(*ends) or np.isnan(ends[0][1] + ends[1][1])
    if ends[1][0] >= ends[0][0] or not falls:
        raise ValueError(
            "The law cannot be identified: the error does not fall from the "
            f"least compute to the most by more than twice its standard error. "
            f"Received: errors of {ends[0][0]:.2%} and {ends[1][0]:.2%}"
        )


def _law(parameters, x):
    log_a, b, c, d = parameters
    return np.exp(log_a - b * np.log(x + d)) + c


def _fitted(x, y, sigma, start=None):
    """Return log(a), b, c and d of the least squares of log errors."""
    from scipy import optimize

    least = float(np.exp(y.min()))
    low = [-30.0, EXPONENTS[0], 0.0, 0.0]
    high = [30.0, EXPONENTS[1], least * (1 - 1e-6), 10 * float(x.max())]

    def residuals(parameters):
        return (np.log(_law(parameters, x)) - y) / sigma

    starts = [start] if start is not None else []
    for share in (0.0, 0.5, 0.9):
        for d in (0.0, float(x.min())):
            above = np.exp(y) - share * least
            slope, height = np.polyfit(np.log(x + d), np.log(above), 1)
            starts.append([height, -slope, share * least, d])
    found = [
        optimize.least_squares(
            residuals,
            np.clip(each, np.add(low, 1e-9), np.subtract(high, 1e-9)),
            bounds=(low, high),
            x_scale=[1.0, 0.1, 0.1 * least, max(float(x.min()), 1e-3)],
            max_nfev=200,
        )
        for each in (starts if start is None else starts[:2])
    ]
    return min(found, key=lambda result: result.cost).x


def _interval(samples):
    """Return the ends of the interval of 95 % of samples, `[S, ...]`."""
    return np.quantile(samples, (0.025, 0.975), axis=0)


def report(law: Law, points: list[Point], further: float) -> str:
    """Return the runs, the law and its predictions as text."""
    wide = max(len(point.name) for point in points)
    lines = [f"{'':{wide}}{'exaFLOPs':>12}{'error':>18}{'law':>9}"]
    for point in points:
        note = "" if point.group == FITTED else f"  {point.group}"
        error = f"{point.error:.2%} +- {2 * point.standard_error:.2%}"
        lines.append(
            f"{point.name:{wide}}{point.compute:>12.4g}{error:>18}"
            f"{law.error(point.compute)[0]:>9.2%}{note}"
        )
    lines += ["", "E = a (C + d)^-b + c, C in exaFLOPs; intervals of 95 %"]
    lines += [_parameter(name, *x) for name, x in law.parameters().items()]
    held_out = [point for point in points if point.group == HELD_OUT]
    lines += ["", *(_prediction(law, point) for point in held_out)]
    value, low, high = law.error(further, noise=True)
    lines.append(
        f"At {further:.4g} exaFLOPs: error {value:.2%} ({low:.2%} to "
        f"{high:.2%}), accuracy {1 - value:.2%}"
    )
    return "\n".join(lines)


def _parameter(name, value, low, high):
    note = ""
    least, most = EXPONENTS
    if name == "b" and (low < 1.1 * least or high > most / 1.1):
        note = "  not determined by these runs"
    if name in "cd" and low == 0:
        note = "  not distinguishable from 0"
    return f"{name} = {value:.4g} ({low:.4g} to {high:.4g}){note}"


def _prediction(law, point):
    value, low, high = law.error(point.compute, noise=True)
    inside = "inside" if low <= point.error <= high else "outside"
    return (
        f"{point.name}, held out: predicted {value:.2%} ({low:.2%} to "
        f"{high:.2%}), found {point.error:.2%}, a difference of "
        f"{100 * (point.error - value):+.2f} points, {inside} the interval"
    )


def draw(law: Law, points: list[Point], further: float):
    """Draw the errors against compute, the law and its band."""
    from matplotlib import ticker

    figure, axes = pictures.axes_of(6.4, 4.4)
    computes = [point.compute for point in points] + [further]
    x = np.geomspace(min(computes), max(computes), 100)
    value, low, high = law.error(x)
    axes.fill_between(x, low, high, color=BLUE, alpha=0.15, linewidth=0)
    values = {name: each[0] for name, each in law.parameters().items()}
    label = "E = {a:.3g} (C + {d:.2g})^-{b:.3g} + {c:.3g}"
    axes.plot(x, value, color=BLUE, linewidth=1.6, label=label.format(**values))
    bars: dict = dict(linestyle="none", capsize=3)
    for group, mark in MARKS.items():
        members = [point for point in points if point.group == group]
        if members:
            axes.errorbar(
                [point.compute for point in members],
                [point.error for point in members],
                yerr=[2 * point.standard_error for point in members],
                label=group,
                **bars | mark,
            )
    value, low, high = law.error(further, noise=True)
    axes.errorbar(
        further,
        value,
        yerr=[[value - low], [high - value]],
        label=f"predicted: {value:.1%}",
        **bars | dict(marker="D", markerfacecolor="none", color=BLUE),
    )
    axes.set(xscale="log", xlabel="compute of training, exaFLOPs")
    axes.set(yscale="log", ylabel="error of the last evaluation")
    axes.yaxis.set_major_locator(ticker.MaxNLocator(6))
    axes.yaxis.set_major_formatter(ticker.PercentFormatter(1))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.set_title("Bars and band: intervals of 95 %", loc="left", fontsize=10)
    pictures.plain(axes, which="both")
    axes.legend(frameon=False, fontsize=9)
    return figure


if __name__ == "__main__":
    sys.exit(main())
