"""Generated prompts through real pastes into real panes: each arrives byte for byte and is submitted once.

    python bench/prompts.py                           5,000 prompts, 6 panes of one private tmux server
    python bench/prompts.py --prompts 200 --seed 9

The way is the product's: :class:`actors.inject.Injection` over :class:`fleetd.hosts.tmux.TmuxHost`. In each pane runs
``prompt_reader.py``, which reads the terminal raw and writes down every byte. What must arrive is what
:func:`actors.prompt.sanitise` and :func:`actors.prompt.guarded` make of the prompt, with each newline as the CR that
every terminal pastes; beside it nothing but one Enter. That those two take out all controls and nothing else is shown
by the tests (``tests/test_hostile_text.py``).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import trio

from actors.host import HostError, PaneRef, PaneSpec
from actors.inject import Injection, Typing
from actors.patterns import Pattern
from actors.prompt import guarded, sanitise
from fleetd.agents.generic import GenericGrammar
from fleetd.hosts.tmux import TmuxHost

READER: Final = Path(__file__).with_name("prompt_reader.py")
GRAMMAR: Final = GenericGrammar(idle=Pattern(r"^> (?:\[Pasted \d+\])?$", "idlePattern"))
#: The reader is not one of the programs that swallow an early Enter.
TYPING: Final = Typing(placeholders=("[Pasted ",), breath_s=0.02)
#: How long anything may take, in seconds.
PATIENCE_S: Final = 120.0
#: How often tmux may fail to answer in time, on a machine that is that busy.
STALLS: Final = 20

#: Pieces that prompts are made of, beside single characters.
PIECES: Final = (
    *(
        "#{pane_id}",
        "#{q:pane_title}",
        "#(touch /tmp/pwned)",
        "#S",
        "##",
        "#[fg=red]",
        "%1",
        "%end 1 2 3",
        "%begin 1 2 3",
    ),
    *(
        ";",
        " ; kill-server",
        "\\;",
        "\\",
        "\\n",
        "$(reboot)",
        "`id`",
        "${HOME}",
        "$HOME",
        "~",
        "'",
        '"',
        "{",
        "}",
        "!!",
    ),
    *("\n", "\n\n\n", "\t", "\r\n", "\r", "  ", " \n", "\u00a0", "\u2028", "\u3000", "\ufeff", "\u200b"),
    *(
        "\x00",
        "\x03",
        "\x04",
        "\x07",
        "\x08",
        "\x15",
        "\x1b",
        "\x1b[201~",
        "\x1b[200~",
        "\x1b[A",
        "\x1b]0;x\x07",
        "\x7f",
    ),
    *("\x85", "\x9b201~", "\x9d0;x\x9c", "\ud800", "\udfff", "\ude00\ud83d", "\ufffe", "\uffff", "\U0010ffff"),
    *(
        "😀",
        "👩‍👩‍👧",
        "🏳️‍🌈",
        "🇩🇪",
        "👍🏽",
        "e\u0301",
        "a" + "\u0308" * 30,
        "한국어",
        "漢字",
        "ｆｕｌｌ",
        "שלום",
        "مرحبا",
        "\u202eabc\u202c",
        "ไทย",
    ),
    *("-t", "-", "--", "/exit", "!ls", "#note", "@file", "?", "Enter", "C-c", "Escape", "[Pasted 5]", "> ", "took 3"),
    *("word", "another", "x" * 300, "API Error: 529 Overloaded", "Task: ", "demo: say hello"),
)
STARTS: Final = (
    "/",
    "!",
    "#",
    "@",
    "\\",
    "-",
    "--help",
    ";",
    "~",
    " ",
    "\n",
    "\t",
    "\x1b",
    "\ud800",
    "#{",
    "$",
    "=",
    "%",
)
ENDS: Final = ("\\", ";", "\\;", "\n", "\r\n", " ", "\t", "\x1b", "\udfff", "#", "\u200d", "\u0301", "~", "'")


def prompts(seed: int, count: int) -> Iterator[str]:
    """That many prompts of which something is left to type. The same seed gives the same ones."""
    draw = random.Random(seed)
    while count:
        text = _prompt(draw)
        if guarded(sanitise(text)):
            count -= 1
            yield text


def _prompt(draw: random.Random) -> str:
    kind = draw.random()
    if kind < 0.25:
        text = "".join(
            chr(draw.choice([draw.randrange(0x100), draw.randrange(0x3000), draw.randrange(0x110000)]))
            for _ in range(draw.randint(1, 40))
        )
    elif kind < 0.98:
        text = "".join(draw.choice(PIECES) for _ in range(draw.choice([1, 2, 3, 5, 8, 20, 60])))
    else:
        text = "".join(draw.choice(PIECES) for _ in range(6000))
    start = draw.choice(STARTS) if draw.random() < 0.4 else ""
    end = draw.choice(ENDS) if draw.random() < 0.4 else ""
    return start + text + end


class Wrong(AssertionError):
    """A prompt did not arrive as it must."""


class Desk:
    """One pane with the reader in it."""

    def __init__(self, host: TmuxHost, directory: Path, number: int) -> None:
        self._host = host
        self._target = f"m-{number}"
        self._path = directory / f"{self._target}.out"
        self._pane: PaneRef
        #: Bytes of its file that were looked at.
        self._read = 0
        #: Enters that found an empty input line.
        self.empty = 0

    async def open(self) -> None:
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": "/"}
        argv = (sys.executable, "-I", str(READER), str(self._path))
        self._pane = await self._host.open(PaneSpec(self._target, argv, env, "/"))

    async def type(self, prompt: str) -> int:
        """Type one prompt as fleetd does; the number of bytes that arrived. Raises :class:`Wrong`."""
        injection = Injection(self._host, self._pane, GRAMMAR, TYPING, own=True)
        await injection.type(prompt, patience_s=PATIENCE_S, withdrawn=lambda: False)
        expected = guarded(sanitise(prompt)).encode().replace(b"\n", b"\r")
        arrived = []
        with trio.fail_after(PATIENCE_S):
            while not arrived:
                arrived = self._submissions()
                await trio.sleep(0 if arrived else 0.01)
        if arrived != [[expected.hex(), b"\r".hex()]]:
            told = [(bytes.fromhex(draft), bytes.fromhex(outside)) for draft, outside in arrived]
            raise Wrong(f"{prompt!r} should have arrived as {expected!r}, once, and what came is {told!r}")
        return len(expected)

    def _submissions(self) -> list[list[str]]:
        """What was submitted since the last look: the drafts, and the keys beside them. Empty lines are counted."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read += len(whole) + len(newline)
        found = [json.loads(line) for line in whole.split(b"\n") if line]
        empty = ["", b"\r".hex()]
        self.empty += found.count(empty)
        return [each for each in found if each != empty]

    async def check_end(self) -> None:
        """Nothing came behind the last prompt. Raises :class:`Wrong`."""
        await self._host.press(self._pane, "C-g", "Enter")
        last: list[list[str]] = []
        with trio.fail_after(PATIENCE_S):
            while not last:
                last = self._submissions()
                await trio.sleep(0.01)
        if last != [["", "070d"]]:
            raise Wrong(f"something was submitted behind the last prompt: {last}")


async def paste_all(
    directory: Path, texts: Iterator[str], panes: int, progress: Callable[[str], None] = lambda _: None
) -> tuple[int, int, int, int]:
    """Type all prompts, divided among some panes; how many, the bytes that arrived, Enters into nothing, and stalls.

    Raises:
        Wrong: one did not arrive as it must.
    """
    host = TmuxHost(directory)
    typed = size = stalls = 0
    desks: list[Desk] = []

    async def seat() -> Desk:
        desk = Desk(host, directory, len(desks) + 1)
        desks.append(desk)
        await desk.open()
        return desk

    async def work() -> None:
        nonlocal typed, size, stalls
        desk = await seat()
        for text in texts:
            try:
                arrived = await desk.type(text)
            except HostError as stalled:
                # Nobody knows whether that one arrived, and fleetd says just that. It is begun anew in another pane.
                stalls += 1
                progress(f"stalled: {stalled}")
                if stalls > STALLS:
                    raise
                desk = await seat()
                arrived = await desk.type(text)
            size += arrived
            typed += 1
            if typed % 250 == 0:
                progress(f"{typed} prompts")
        await desk.check_end()

    async with trio.open_nursery() as nursery:
        await nursery.start(host.run)
        try:
            async with trio.open_nursery() as working:
                for _ in range(panes):
                    working.start_soon(work)
            buffers = await host._control.run("list-buffers")
            if any(buffers):
                raise Wrong(f"pastes are left in tmux buffers: {buffers}")
        finally:
            with trio.CancelScope(shield=True):
                await host.kill_server()
        nursery.cancel_scope.cancel()
    return typed, size, sum(desk.empty for desk in desks), stalls


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=5000)
    parser.add_argument("--panes", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleetd-prompts-") as temporary:
        begun = time.monotonic()
        texts = prompts(arguments.seed, arguments.prompts)
        typed, size, empty, stalls = trio.run(paste_all, Path(temporary), texts, arguments.panes, print)
    print(
        f"{typed} prompts arrived byte for byte and were submitted once: {size} bytes in {arguments.panes} panes, "
        f"{empty} Enters found an empty line, tmux stalled {stalls} times, {time.monotonic() - begun:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
