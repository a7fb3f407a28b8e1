"""How well a device was used."""

from __future__ import annotations

import pytest

from slotlab.record.hardware import HARDWARE, hardware_metrics

WORK = {"flops": 6e9, "bytes": 3e9, "forward_s": 2.0, "peak_flops": 1e10, "peak_bandwidth": 3e9}


def test_shares_of_the_peaks_count_the_time_in_forward_passes_only():
    found = hardware_metrics(WORK, span=8.0)
    assert found == {"arithmetic_intensity": 2.0, "mfu": pytest.approx(0.3), "mbu": 0.5, "forward_share": 0.25}
    assert found.keys() == HARDWARE.keys()


def test_what_was_not_counted_is_left_out():
    assert hardware_metrics({}, span=8.0) == {}
    assert hardware_metrics({**WORK, "bytes": 0.0, "forward_s": 0.0}, span=None) == {}
    assert "forward_share" not in hardware_metrics(WORK, span=None)
