"""Commit the most."""

from __future__ import annotations

from dataclasses import dataclass

from slotlab import FOREVER, Admission, Quiet, RequestView, View


@dataclass
class ReserveMax(Admission):
    """Commit prompt and `max_tokens` at the start (Orca, TGI): nobody is ever preempted for want of KV.

    The more the cap exceeds the true lengths, the more of the cache stands empty.
    """

    def reserve(self, req: RequestView, view: View) -> int | None:
        return req.prompt_tokens + req.max_tokens

    def quiet(self, view: View) -> Quiet:
        return FOREVER  # free blocks only shrink while others decode


CHOICES = {"reserve_max": ReserveMax}
