"""A password in a URI is in no file, tag, artifact or line: MLflow is told it by its own variables."""

from __future__ import annotations

import os

import pytest

from slotlab.tracking import TrackingError, resolve_uri, take_password

NAMES = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
SERVER = "http://ann:s%40cr3t%2F@127.0.0.1:9"
UNIT = ["engine=simulated", "engine.cost=unit", "workload.requests=3", "load.rates=[1]"]


@pytest.fixture(autouse=True)
def no_login(monkeypatch):
    for name in NAMES:
        monkeypatch.setenv(name, "")


def login():
    return tuple(os.environ[name] for name in NAMES)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("https://ann:pw@host/path", "https://host/path"),
        ("+tracking.uri='https://ann:pw@host'", "+tracking.uri='https://host'"),
        ("tracking={uri:https://ann:pw@host}", "tracking={uri:https://host}"),
        ("https://ann:pw@a,https://ann:pw@b", "https://a,https://b"),
    ],
)
def test_a_password_goes_where_mlflow_looks_for_it(text, left):
    assert (take_password(text), login()) == (left, ("ann", "pw"))


def test_a_password_with_special_characters_is_decoded():
    assert take_password(SERVER) == "http://127.0.0.1:9" and login() == ("ann", "s@cr3t/")
    assert take_password("https://ann:p@w@host") == "https://host" and login() == ("ann", "p@w")


@pytest.mark.parametrize("text", ["sqlite:////data/a@b/x.db", "https://host/a@b", "https://host", "mlflow.db"])
def test_what_has_no_password_is_left_as_it_is(text):
    assert take_password(text) == text and login() == ("", "")


@pytest.mark.parametrize("text", ["https://ann@host", "https://ann:@host", "https://a:pw@one,https://b:pq@two"])
def test_what_mlflow_cannot_send_is_refused_without_naming_it(text):
    with pytest.raises(TrackingError, match=r"^tracking.uri: ") as error:
        take_password(text)
    assert "ann" not in str(error.value) and "pw" not in str(error.value) and login() == ("", "")


def test_the_variable_is_cleaned_too(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", SERVER)
    assert resolve_uri(None, tmp_path) == os.environ["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:9"
    assert login() == ("ann", "s@cr3t/")


@pytest.mark.parametrize(
    "words", [[f"tracking.uri={SERVER}"], ["tracking.uri=${oc.env:SECRET}"], ["-m", f"tracking.uri={SERVER}"]]
)
def test_a_run_leaves_no_password_behind(slotlab, monkeypatch, tmp_path, words):
    monkeypatch.setenv("SECRET", SERVER)
    said = slotlab(*words, *UNIT, "policy=fcfs", tracking="mlflow")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files and not [path for path in files if b"s%40cr3t" in path.read_bytes() or b"s@cr3t" in path.read_bytes()]
    assert "cr3t" not in said.out + said.err and login() == ("ann", "s@cr3t/")


@pytest.mark.parametrize("words", [[f"traking.uri={SERVER}"], ["ui", "--url", SERVER], [f"policy={SERVER}"], ["rerun", SERVER]])
def test_an_error_line_says_no_password(slotlab, words):
    said = slotlab(*words)
    assert said.code == 2 and "cr3t" not in said.out + said.err
