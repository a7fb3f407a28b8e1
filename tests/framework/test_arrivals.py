"""What no engine could serve is refused before it is asked to, in the workload's name and with the number of the arrival."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from slotlab import Arrival, PluginError, UserError, Workload
from slotlab.arrivals import check_arrivals

FIRST = Arrival(1.0, 10, 8, 8)


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"time": math.nan}, "time nan: must be finite, and at most 1e+09"),
        ({"time": 1e300}, "time 1e+300: must be finite"),
        ({"time": "1"}, "time 1: must be finite"),
        ({"time": 0.5}, "time 0.5 after 1.0: must not go back"),
        ({"prompt_tokens": 10**19}, "prompt_tokens 10000000000000000000: must be an int, at least 1 and at most 1000000000"),
        ({"prompt_tokens": 0}, "prompt_tokens 0: "),
        ({"prompt_tokens": True}, "prompt_tokens True: "),
        ({"max_tokens": 8.0}, "max_tokens 8.0: "),
        ({"output_tokens": 9}, "output_tokens 9: must be at most max_tokens, 8"),
        ({"prefix_group": 0, "prefix_tokens": 10}, "prefix_tokens 10: must be fewer than the prompt's 10"),
        ({"prefix_group": 0, "prefix_tokens": -1}, "prefix_tokens -1: "),
        ({"prefix_group": "a", "prefix_tokens": 1}, "prefix_group 'a': must be an int, or None"),
        ({"follows": 1}, "follows 1: must be the index of an arrival before it"),
        ({"follows": 0, "prompt_tokens": 18}, "prompt_tokens 18: must be more than the 18 that were said before"),
        ({"follows": 0, "prompt_tokens": 19, "think": math.inf}, "think inf: must be at least 0"),
        ({"priority": 2**31}, "priority 2147483648: must be an int, from -2147483648 to 2147483647"),
        ({"tenant": None}, "tenant None: must be a str"),
        ({"weight": 0.0}, "weight 0.0: must be greater than 0"),
        ({"deadline": math.nan}, "deadline nan: must be finite, or None"),
        ({"text": ["a"]}, "text ['a']: must be words, or (role, words) of each message"),
        ({"text": ()}, "text (): must be words"),
    ],
)
def test_an_arrival_that_no_engine_can_serve_is_refused_at_the_door(changes, wrong):
    with pytest.raises(PluginError) as error:
        check_arrivals(Workload(), [FIRST, replace(FIRST, **changes)])
    assert str(error.value).startswith(f"Workload: request 1: draw gave {wrong}")


def test_a_prompt_without_words_cannot_begin_with_words_that_nobody_has_counted():
    words = Arrival(0.0, 0, 8, None, text="hello")
    with pytest.raises(PluginError, match="follows 0: must be an arrival without words, as this one is"):
        check_arrivals(Workload(), [words, replace(FIRST, follows=0)])


def test_what_can_be_served_is_let_in():
    chat = Arrival(1.0, 0, 8, None, text=(("user", "hello"),))
    turn = replace(FIRST, follows=0, prompt_tokens=19, time=np.float32(1.0))
    check_arrivals(Workload(), [FIRST, turn, replace(FIRST, prefix_group=-7, prefix_tokens=9), chat, replace(chat, follows=3)])
    with pytest.raises(UserError, match="workload: it is empty"):
        check_arrivals(Workload(), [])
