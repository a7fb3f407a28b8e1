"""Damaged files beside a run or in it: one line that names the file, from every command that reads it."""

from __future__ import annotations

import json
import shutil

import pytest

RUN = ("engine=simulated", "workload.requests=5", "load.rates=[60]", "record.oracle=false")
READERS = {  # the commands that read each file
    "meta.json": ("compare", "export", "rerun"),
    "curve.json": ("compare", "export", "rerun"),
    "config.yaml": ("compare", "rerun"),
    "requests.parquet": ("compare", "export", "lossy"),
    "arrivals.parquet": ("export", "rerun"),
    "steps.parquet": ("export",),
}
DAMAGE = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "no text": lambda data: b"\xff\xfe\x00" + data,
    "another type": lambda data: b"[1, 2]",
    "NaN": lambda data: b'{"status": NaN}',
    "deep": lambda data: b"[" * 100_000,
}


@pytest.fixture
def run(slotlab, monkeypatch):
    monkeypatch.setattr("slotlab.record.charts.draw_curve", lambda *args, **options: None)
    return slotlab(*RUN).folder


def test_whatever_is_wrong_with_a_file_of_a_run_is_one_line_that_names_it(slotlab, run):
    """Truncated tables, empty JSON, another type than an object: each was a traceback."""
    sound = run.with_name("sound")
    shutil.copytree(run, sound)
    words = {
        "compare": ("compare", str(sound), str(run)),
        "export": ("export", str(run), "--format", "csv"),
        "rerun": ("rerun", str(run)),
        "lossy": ("rerun", str(run), "--lossy"),
    }
    for name, readers in READERS.items():
        data = (run / name).read_bytes()
        for kind, damage in DAMAGE.items():
            (run / name).write_bytes(damage(data))
            for reader in readers:
                said = slotlab(*words[reader])
                case = f"{kind} {name}, {reader}: {said.err}"
                assert said.code == 2 and said.err.count("\n") == 1 and str(run / name) in said.err, case
        (run / name).write_bytes(data)
    assert slotlab(*words["export"]).code == 0


@pytest.mark.parametrize("text", ["", "[]", '{"status": 1}', '{"status": "FINISHED", "facts": 3}'])
def test_an_unrelated_neighbour_that_is_damaged_does_not_stop_a_comparison(slotlab, run, text):
    other = run.with_name("other")
    shutil.copytree(run, other)
    meta = json.loads((run / "meta.json").read_text())
    for folder in (run, other):
        (folder / "meta.json").write_text(json.dumps(meta | {"real": True}))
    neighbour = run.with_name("neighbour") / "meta.json"
    neighbour.parent.mkdir()
    neighbour.write_text(text)
    said = slotlab("compare", str(run), str(other))
    assert said.code == 0, said.err
    assert f"left out: {neighbour}: " in said.out


def test_another_schema_version_and_a_folder_that_is_a_file_are_one_line(slotlab, run, tmp_path):
    import pyarrow.parquet as pq

    path = run / "arrivals.parquet"
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"schema_version": "1"}), path)
    assert slotlab("rerun", str(run)).err == f"slotlab: {path}: schema_version=1: must be 2\n"
    (tmp_path / "file").write_text("")
    for words in (["compare", "file", "file"], ["export", "file", "--format", "csv"], ["rerun", "file"]):
        said = slotlab(*words)
        assert said.code == 2 and said.err.count("\n") == 1 and "file: must be the folder of a run" in said.err
