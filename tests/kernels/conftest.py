"""Fixtures of the kernel tests. Numba keeps what it compiles in the package's __pycache__ or, if need be, in ~/.cache."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: spinning threads fight over a shared machine
