"""The arguments that tools share, with their bounds."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

#: The longest wait of one call, in seconds: below the time-outs that agents put on a tool.
MAX_WAIT_S: Final = 50


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A tool's arguments. An unknown one is refused: a misspelt option must not be ignored."""


Target = Annotated[str, Meta(min_length=1, max_length=64, description="A member's target (m-4) or name.")]
Ticket = Annotated[str, Meta(min_length=1, max_length=64, description="A send's ticket, t-N.")]
Prompt = Annotated[str, Meta(min_length=1, max_length=262_144, description="What the member is to do.")]
WaitSeconds = Annotated[
    float, Meta(ge=0, le=MAX_WAIT_S, description=f"How long to wait in this call, at most {MAX_WAIT_S} seconds.")
]
