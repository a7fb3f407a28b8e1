"""Shortest prompt first, within windows of time: a policy for slotlab in a package of its own."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import Key, Policy, RequestView, hookimpl, require


@dataclass
class PromptWindow(Policy):
    """Shortest prompt first among those that arrived in the same `window` of seconds; earlier windows go first.

    Short prompts free the queue soonest, and nobody is passed by a request that came more than `window` later. The key never
    changes while a request waits, so it is asked for once and nothing is sorted again.
    """

    window: float = 1.0

    def __post_init__(self) -> None:
        require(self.window > 0, "window", self.window, "greater than 0")

    def key(self, req: RequestView) -> Key:
        return req.arrival // self.window, req.prompt_tokens


@hookimpl
def slotlab_policies() -> dict[str, object]:
    """The choices `policy=prompt_window`, with options, and `policy=prompt_window_10s`, a preset of them."""
    return {"prompt_window": PromptWindow, "prompt_window_10s": PromptWindow(window=10.0)}
