"""Photograph an experiment's curves in MLflow: starts `slotlab ui` on a database and saves the chart page as a PNG.

    pip install playwright                      # no browser download: Debian's is used
    apt-get install -y chromium
    python experiments/policy_curves/screenshot.py sqlite:///mlflow.db policy_curves experiments/policy_curves/mlflow.png

The README's picture is made this way.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

# What MLflow keeps per browser: the assistant's panel, which opens by itself at the first visit, stays shut.
STORAGE = {"mlflow.assistant.panelOpen_v1": "false", "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true"}
SERVE = "import sys; from slotlab.tracking.server import serve_ui; serve_ui(sys.argv[1], int(sys.argv[2]), sys.argv[3])"


def shoot(url: str, png: Path, browser: str, width: int, height: int) -> None:
    """Save the page at `url`, charts drawn, as a PNG of width x height pixels."""
    storage = "".join(f"localStorage.setItem({key!r}, {value!r});" for key, value in STORAGE.items())
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page(viewport={"width": width, "height": height})
        page.add_init_script(storage)
        page.goto(url)
        page.wait_for_selector(".js-plotly-plot", timeout=60_000)
        page.wait_for_timeout(3_000)  # the points arrive after the axes
        page.screenshot(path=png)
        chromium.close()


def main() -> None:
    """Serve, shoot, stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("uri", help="the database: sqlite:///file")
    parser.add_argument("experiment", help="the experiment's name")
    parser.add_argument("png", type=Path, help="where to save the picture")
    parser.add_argument("--python", default=sys.executable, help="a python that has slotlab, if this one has only playwright")
    parser.add_argument("--browser", default="/usr/bin/chromium")
    parser.add_argument("--port", type=int, default=5078)
    parser.add_argument("--width", type=int, default=1700)
    parser.add_argument("--height", type=int, default=1280)
    args = parser.parse_args()
    command = [args.python, "-c", SERVE, args.uri, str(args.port), args.experiment]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None, "the server's output is piped"
            _, _, url = server.stdout.readline().strip().partition(": ")
            if not url:
                sys.exit("the server did not start")
            shoot(url, args.png, args.browser, args.width, args.height)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
