"""The saved view: MLflow's chart page of an experiment, ready with throughput-latency curves.

MLflow keeps a saved view in a tag of the experiment. The format is its own and undocumented: as 3.17 writes it.
"""

import base64
import json
import time
import zlib
from collections.abc import Mapping
from typing import Any

VIEW = "slotlab-curves"  # fixed ids: writing the view again replaces it
TAG = f"mlflow.sharedViewState.{VIEW}"
X = "output_throughput"
CURVES = (  # y, x, scale of y
    ("ttft_mean", X, "log"),
    ("ttft_p99", X, "log"),
    ("e2e_mean", X, "linear"),
    ("tpot_mean", X, "linear"),
    (X, "offered_rate", "linear"),
)
SCALARS = ("max_throughput",)
SEED = ("slot_utilisation", "batch_efficiency", "e2e_mean", "makespan")
COLUMNS = ("attributes.`Dataset`", "metrics.`max_throughput`", "metrics.`goodput_at_slo`", "metrics.`knee_rate`")


def curves_link(server: str, experiment_id: str) -> str:
    """The page of an experiment with its curves, on the server at that address."""
    query = f"viewStateShareKey={VIEW}&compareRunsMode=CHART&workflowType=machine_learning"
    return f"{server}/#/experiments/{experiment_id}/runs?{query}"


def view_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags that an experiment with these `tags` still needs: its view, and the kind that opens MLflow's ML pages."""
    state = "deflate;" + base64.b64encode(zlib.compress(json.dumps(view_state()).encode())).decode()
    wanted = {"mlflow.experimentKind": "custom_model_development"}
    if f'"{state}"' not in tags.get(TAG, ""):
        now = int(time.time() * 1000)
        wanted[TAG] = json.dumps({"name": "slotlab curves", "createdAt": now, "updatedAt": now, "state": state})
    return {key: value for key, value in wanted.items() if tags.get(key) != value}


def view_state() -> dict[str, Any]:
    """Finished runs only, all of them drawn, sorted by a metric (sorted by time MLflow would fold runs away)."""
    curves, last = "slotlab-s1", "slotlab-s2"
    lines = [_line(f"slotlab-c{i}", curves, *spec) for i, spec in enumerate(CURVES)]
    bars = [_card(f"slotlab-m{i}", "BAR", curves, metric) for i, metric in enumerate(SCALARS)]
    seed = [_card(f"slotlab-b{i}", "BAR", last, metric) for i, metric in enumerate(SEED)]
    return {
        "searchFilter": "attributes.status = 'FINISHED'",
        "orderByKey": "metrics.`max_throughput`",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": list(COLUMNS),
        "columnOrder": list(COLUMNS),
        "columnWidths": {},
        "runsHiddenMode": "SHOW_ALL",
        "viewMaximized": False,
        "runListHidden": False,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": None,
        "groupsExpanded": {},
        "globalLineChartConfig": {"xAxisKey": "metric", "lineSmoothness": 0, "selectedXAxisMetricKey": X},
        "compareRunCharts": lines + bars + seed,
        "compareRunSections": [
            _section(curves, "Curves: one line per run", 430),
            _section(last, "At the last load point", 280),
        ],
        "isAccordionReordered": True,
    }


def _card(uuid: str, kind: str, section: str, metric: str) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "type": kind,
        "runsCountToCompare": 100,
        "metricSectionId": section,
        "deleted": False,
        "isGenerated": False,
        "metricKey": metric,
    }


def _line(uuid: str, section: str, y: str, x: str, scale: str) -> dict[str, Any]:
    return _card(uuid, "LINE", section, y) | {
        "selectedMetricKeys": [y],
        "xAxisKey": "metric",
        "selectedXAxisMetricKey": x,
        "useGlobalXaxisKey": False,
        "xAxisScaleType": "linear",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "scaleType": scale,
        "range": {},
        "lineSmoothness": 0,
        "useGlobalLineSmoothing": False,
        "displayPoints": True,
        "ignoreOutliers": False,
    }


def _section(uuid: str, name: str, card_height: int) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "name": name,
        "columns": 3,
        "cardHeight": card_height,  # pixels; the legend takes what the chart leaves
        "display": True,
        "isReordered": True,
        "deleted": False,
        "isGenerated": False,
    }
