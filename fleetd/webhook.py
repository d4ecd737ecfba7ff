"""Delivering a health event to a webhook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The whole call, in seconds.
TIMEOUT_S: Final = 10.0


class NotDelivered(Exception):
    """The event has not arrived. The message never holds the address: that may hold a token, and goes to the log."""


async def post(url: str, event: Mapping[str, object]) -> None:
    """POST one event as JSON.

    Raises:
        NotDelivered: it was not delivered, or not taken.
    """
    # Imported at the first event: most daemons never have one, and the import costs a tenth of a second.
    import httpx

    try:
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            response = await client.post(url, json=dict(event))
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise NotDelivered(f"the webhook cannot be reached: {type(exc).__name__}") from None
    if not response.is_success:
        raise NotDelivered(f"the webhook answered {response.status_code}")
