import os
import subprocess
import sys


def test_shapes_and_tokenizers_are_read_without_torch() -> None:
    """A simulated engine or a command line that lists models must not wait for torch."""
    code = "import sys, slotlab_kernels.checkpoint, slotlab_kernels.tokenizer; sys.exit('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
