"""Fits the length laws and the arrivals of the presets chat, code and long_context to public traces, and prints them.

python experiments/fitted_presets/fit.py ../shared/traces
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from slotlab import Streams
from slotlab_plugins.laws.arrivals import Arrivals
from slotlab_plugins.laws.lengths import Lengths

KNOTS = 20  # of a quantile law


def azure(path: Path) -> pd.DataFrame:
    """An Azure 2023 trace: seconds, prompt, output."""
    table = pd.read_csv(path)
    seconds = pd.to_datetime(table["TIMESTAMP"]).astype("int64") / 1e9
    return pd.DataFrame({"time": seconds, "prompt": table["ContextTokens"], "output": table["GeneratedTokens"]})


def mooncake(path: Path) -> pd.DataFrame:
    """A Mooncake trace; its times stand on a grid of 3 s, over which they are spread here."""
    table = pd.read_json(path, lines=True)
    seconds = np.sort(table["timestamp"] / 1e3 + 3 * np.random.default_rng(0).random(len(table)))
    return pd.DataFrame({"time": seconds, "prompt": table["input_length"], "output": table["output_length"]})


def distance(values: np.ndarray, law: Lengths) -> float:
    """KS distance between a column and a law."""
    drawn = law.draw(np.random.default_rng(0), 400_000)
    return float(stats.ks_2samp(values, drawn, method="asymp").statistic)


def lognormal(values: np.ndarray) -> Lengths:
    """By the moments of the logarithm."""
    sigma = float(np.log(values).std())
    mean = float(np.exp(np.log(values).mean() + sigma**2 / 2))
    return Lengths(mean=round(mean, 1), sigma=round(sigma, 3), low=int(values.min()), high=int(values.max()))


def quantiles(values: np.ndarray) -> Lengths:
    """Knots at the percentiles where the distribution function is worst so far, beside the ends and two in the upper tail."""
    grid = np.concatenate([np.linspace(0.0, 0.99, 100), [0.999, 1.0]])
    ordered, heights = np.sort(values), np.quantile(values, grid, method="nearest")
    knots = {0, len(grid) - 3, len(grid) - 2, len(grid) - 1}
    while len(knots) < KNOTS:
        at = sorted(knots)
        law = np.rint(np.exp(np.interp(np.linspace(0, 1, len(ordered)), grid[at], np.log(heights[at]))))
        below = [np.searchsorted(column, heights, side="right") for column in (law, ordered)]
        error = np.abs(np.subtract(*below))
        error[at] = -1
        knots.add(int(np.argmax(error)))
    at = sorted(knots)
    probabilities = [round(float(place), 3) for place in grid[at]]
    return Lengths("quantiles", quantiles=heights[at].tolist(), probabilities=probabilities, high=int(ordered[-1]))


def dispersion(times: np.ndarray, width: float) -> float:
    """Index of dispersion of the counts in windows of `width` seconds."""
    counts = np.bincount(((times - times[0]) / width).astype(int))[:-1]
    return float(counts.var() / counts.mean())


def fit_arrivals(times: np.ndarray) -> None:
    """Print how far three renewal processes with the trace's own spread of gaps are from it."""
    gaps = np.diff(times)
    rate, cv, widths = 1 / gaps.mean(), float(gaps.std() / gaps.mean()), (1, 10, 60)
    print(f"  {rate:.3f} requests/s, cv {cv:.2f}, dispersion", [round(dispersion(times, width), 1) for width in widths])
    for law in ("poisson", "gamma", "weibull"):
        process = Arrivals(law, cv=cv)
        drawn = process.draw(Streams(0)("fit"), 400_000, 1.0) / rate
        ks = stats.ks_2samp(gaps, np.diff(drawn), method="asymp").statistic
        print(f"  {law}: KS {ks:.3f}, dispersion", [round(dispersion(drawn, width), 1) for width in widths])


def main(traces: Path) -> None:
    """Print all fits."""
    found = {
        "chat": azure(traces / "azure/AzureLLMInferenceTrace_conv.csv"),
        "code": azure(traces / "azure/AzureLLMInferenceTrace_code.csv"),
        "long_context": mooncake(traces / "mooncake/conversation_trace.jsonl"),
    }
    for name, table in found.items():
        print(name, f"{len(table)} rows, rank correlation of prompt and output", end=" ")
        print(f"{stats.spearmanr(table['prompt'], table['output']).statistic:.2f}")
        fit_arrivals(table["time"].to_numpy())
        for column in ("prompt", "output"):
            values = table[column].to_numpy()
            for law in (lognormal(values), quantiles(values)):
                mean = np.mean(law.draw(np.random.default_rng(0), 400_000))
                print(f"  {column} {law.law}: KS {distance(values, law):.3f}, mean {mean:.0f} of {values.mean():.0f}")
            print("   ", {"quantiles": law.quantiles, "probabilities": law.probabilities})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
