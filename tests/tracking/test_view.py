"""The saved view, as MLflow's pages would read it from the experiment's tag."""

import base64
import json
import zlib
from typing import Any

import pytest

from slotlab.tracking.view import TAG, curves_link, view_tags


@pytest.fixture
def state() -> dict[str, Any]:
    kind, _, text = json.loads(view_tags({})[TAG])["state"].partition(";")
    assert kind == "deflate"
    decoded: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(text)))
    return decoded


def test_only_finished_runs_are_shown_and_all_of_them(state: dict[str, Any]) -> None:
    assert state["searchFilter"] == "attributes.status = 'FINISHED'"
    assert state["runsHiddenMode"] == "SHOW_ALL" and state["hideEmptyCharts"]
    assert state["orderByKey"] == "metrics.`max_throughput`" and state["groupBy"] is None


def test_the_curves_stand_there(state: dict[str, Any]) -> None:
    charts = [chart for chart in state["compareRunCharts"] if chart["type"] == "LINE"]
    assert [(c["metricKey"], c["selectedXAxisMetricKey"], c["scaleType"]) for c in charts] == [
        ("ttft_mean", "output_throughput", "log"),
        ("ttft_p99", "output_throughput", "log"),
        ("e2e_mean", "output_throughput", "linear"),
        ("tpot_mean", "output_throughput", "linear"),
        ("output_throughput", "offered_rate", "linear"),
    ]
    assert all(c["displayPoints"] and c["xAxisKey"] == "metric" and not c["useGlobalXaxisKey"] for c in charts)


def test_bars_show_the_scalars_and_what_a_run_of_one_point_has(state: dict[str, Any]) -> None:
    bars = [chart["metricKey"] for chart in state["compareRunCharts"] if chart["type"] == "BAR"]
    assert bars == ["max_throughput", "slot_utilisation", "batch_efficiency", "e2e_mean", "makespan"]


def test_every_chart_has_its_own_id_and_a_section(state: dict[str, Any]) -> None:
    charts = state["compareRunCharts"]
    assert len({chart["uuid"] for chart in charts}) == len(charts)
    assert {chart["metricSectionId"] for chart in charts} == {s["uuid"] for s in state["compareRunSections"]}


def test_a_view_that_stands_is_not_written_again_and_an_old_one_is() -> None:
    tags = view_tags({})
    assert tags["mlflow.experimentKind"] == "custom_model_development" and len(tags[TAG]) < 5000
    assert view_tags(tags) == {}
    assert set(view_tags(tags | {TAG: "{}"})) == {TAG}


def test_the_link_opens_the_charts_of_the_view() -> None:
    assert curves_link("http://h:1", "7").startswith("http://h:1/#/experiments/7/runs?viewStateShareKey=slotlab-curves&")
