"""A fresh git worktree for a member, on a branch of its own.

It stays when the member is released: what the member did not commit is in it.
"""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path

import trio

from actors.host import OpenFailed


async def add_worktree(cwd: str, target: str) -> str:
    """Make a worktree of the repository around ``cwd`` and return its directory.

    It stands beside the repository, in ``<repository>.worktrees``, on the branch ``fleetd/<name>``.

    Raises:
        OpenFailed: git refused, or is missing; its own words are in the message.
    """
    top = Path((await _git(cwd, "rev-parse", "--show-toplevel")).strip())
    name = f"{target}-{secrets.token_hex(3)}"
    directory = top.with_name(f"{top.name}.worktrees") / name
    await _git(str(top), "worktree", "add", "-b", f"fleetd/{name}", str(directory))
    return str(directory)


async def _git(cwd: str, *args: str) -> str:
    try:
        done = await trio.run_process(
            ["git", "-C", cwd, *args], capture_stdout=True, capture_stderr=True, check=False, stdin=subprocess.DEVNULL
        )
    except OSError as exc:
        raise OpenFailed(f"git could not be run: {exc.strerror}") from None
    if done.returncode != 0:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise OpenFailed(f"git {args[0]} failed in {cwd}: {words[-1] if words else f'exit code {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")
