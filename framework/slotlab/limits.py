"""The largest numbers that options and requests may be: what clocks can tell, columns can hold and memory has room for."""

from __future__ import annotations

MOST_TOKENS = 10**9  # of a prompt, an answer or a step
MOST_REQUESTS = 10**7  # of one draw
MOST_REPEATS = 1000  # of a load point, and points of a load: all repeats are drawn before the first is served
MOST_SLOTS = 10**6  # requests that run at once
MOST_BLOCKS = 10**7  # of KV: the pool lists its free blocks
MOST_PRICE = 10**6  # of a token, in whatever fair policies count
MOST_TIMES = 10**6  # what something may be multiplied by
MOST_SIGMA = 100  # standard deviation of a logarithm
MOST_EXPONENT = 100  # of a power law
LATEST = 1e9  # seconds, or mean gaps: clocks still tell a microsecond there
LONGEST = LATEST / 100  # of what is drawn around a mean or repeated, so that what comes of it stays before LATEST
STEP = 1e-9, 1e3  # seconds that a simulated step may take; and the most that a token or block may add
RATES = 1e-6, 1e9  # requests per second
PRIORITIES = -(2**31), 2**31 - 1  # what a record has room for
WHOLE = -(2**63), 2**63 - 1  # any whole number: what a column holds
NUMBER = 1e15  # any other number, up to its sign: its powers are far from the largest float
