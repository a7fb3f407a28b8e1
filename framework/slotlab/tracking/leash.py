"""Runs a command that ends when its owner does: `python leash.py COMMAND ...`, with a pipe from the owner as standard input.

However the owner dies, by SIGKILL too, the system closes the pipe; then the command's whole process group goes. To be started
as the leader of a group of its own. It is run as a file, for it needs nothing of slotlab.
"""

import os
import signal
import subprocess
import sys
import threading

STOP_SECONDS = 10.0


def main(command: list[str]) -> int:
    """Run `command`; its exit code."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # meant for the command: we go when it has gone
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=end_with_owner, args=(child,), daemon=True).start()
    return child.wait()


def end_with_owner(child: "subprocess.Popen[bytes]") -> None:
    """Wait for the end of the pipe; then end the group: politely, then not."""
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGTERM)
    try:
        child.wait(STOP_SECONDS)
    finally:
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # at once: a thread still waits for the end of the pipe
