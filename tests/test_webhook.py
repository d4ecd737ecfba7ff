"""Health events reach a real web server, and a refusal is an error."""

from __future__ import annotations

import json

import pytest
import trio

from fleetd.webhook import NotDelivered, post

pytestmark = pytest.mark.live


class Hook:
    """A web server that takes one kind of answer and keeps the bodies."""

    def __init__(self, status: str) -> None:
        self.status = status
        self.bodies: list[dict[str, object]] = []
        self.url = ""

    async def serve(self, stream: trio.SocketStream) -> None:
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive_some(4096)
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"
        )
        while len(body) < length:
            body += await stream.receive_some(4096)
        self.bodies.append(json.loads(body))
        await stream.send_all(f"HTTP/1.1 {self.status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())


@pytest.fixture(params=["204 No Content", "500 Oops"])
async def hook(request: pytest.FixtureRequest, nursery: trio.Nursery) -> Hook:
    hook = Hook(request.param)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    hook.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/hook"
    nursery.start_soon(trio.serve_listeners, hook.serve, [listener])
    return hook


async def test_an_event_is_posted_as_json(hook: Hook) -> None:
    event = {"event": "begun", "target": "m-1", "state": "lost", "forSeconds": 0}
    if hook.status.startswith("204"):
        await post(hook.url, event)
    else:
        with pytest.raises(NotDelivered, match=r"answered 500$"):
            await post(hook.url, event)
    assert hook.bodies == [event]


async def test_a_webhook_that_nobody_serves_is_an_error() -> None:
    with pytest.raises(NotDelivered, match=r"ConnectError$"):
        await post("http://127.0.0.1:9/hook", {})


@pytest.mark.parametrize(
    "address", ["http://u:{}@127.0.0.1:9/", "http://127.0.0.1:9/?t={}", "http://[{}]/", "http://x:{}/"]
)
async def test_what_is_said_of_a_failure_holds_nothing_of_the_address(address: str) -> None:
    with pytest.raises(NotDelivered) as failed:
        await post(address.format("sesame"), {})
    assert "sesame" not in str(failed.value)
    assert failed.value.__cause__ is None
