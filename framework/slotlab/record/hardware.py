"""How well a real engine used its device: a busy device is not a saturated one."""

from __future__ import annotations

from collections.abc import Mapping

HARDWARE = {
    "arithmetic_intensity": "floating point operations / bytes moved, both of the model's matrix products and attention [1/byte]",
    "mfu": "floating point operations / (seconds in forward passes x peak measured at open)",
    "mbu": "bytes moved / (seconds in forward passes x peak bandwidth measured at open); above 1 where caches hold the weights",
    "forward_share": "seconds in forward passes / span: how busy the device was",
}


def hardware_metrics(work: Mapping[str, float], span: float | None) -> dict[str, float]:
    """The figures of `HARDWARE` from what `Engine.work` counted over one load point and repeat; none if it counted nothing."""
    if not (work.get("forward_s") and work.get("bytes")):
        return {}
    seconds = work["forward_s"]
    found = {
        "arithmetic_intensity": work["flops"] / work["bytes"],
        "mfu": work["flops"] / (seconds * work["peak_flops"]),
        "mbu": work["bytes"] / (seconds * work["peak_bandwidth"]),
    }
    return {**found, "forward_share": seconds / span} if span else found
