"""Delivering a health event to a webhook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The whole call, in seconds.
TIMEOUT_S: Final = 10.0


async def post(url: str, event: Mapping[str, object]) -> None:
    """POST one event as JSON.

    Raises:
        httpx.HTTPError: it was not delivered, or not taken.
    """
    # Imported at the first event: most daemons never have one, and the import costs a tenth of a second.
    import httpx

    async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
        response = await client.post(url, json=dict(event))
        response.raise_for_status()
