"""The command line: a client of the same door and the same tools as everybody else.

Exit codes: 0 done, 1 refused or failed (the reason on stderr), 2 usage, 3 no daemon.
"""

from __future__ import annotations

import json
import os
import select
import sys
from argparse import Namespace as Arguments
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import trio

from actors.supervise import leaf
from fleetd.client import NoDaemon, Refusal, connect
from fleetd.environment import OwnMember, refuse_own_member
from fleetd.rundir import RuntimeDirError, check_runtime_dir, runtime_dir, socket_path
from fleetd.toolverbs import TOOL_VERBS
from fleetd.usage import build_parser

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NO_DAEMON: Final = 3
INTERRUPTED: Final = 130

#: What a daemon is given to end its members and itself, in seconds.
END_S: Final = 30.0

Verb = Callable[[Arguments], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        return VERBS.get(arguments.verb, run_tool)(arguments)
    except BaseException as exc:
        match leaf(exc):  # what is raised inside a connection comes wrapped in its nursery's group
            case NoDaemon() as away:
                return _say(str(away), NO_DAEMON)
            case Refusal() | RuntimeDirError() as no:
                return _say(str(no), FAILED)
            case UnicodeDecodeError():
                return _say("what stands on standard input is no text in UTF-8: convert it", FAILED)
            case KeyboardInterrupt():
                return INTERRUPTED
            case BrokenPipeError():
                # Whoever read our output has gone; Python would complain again when it closes standard output.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return FAILED
            case _:
                raise


def _say(reason: str, code: int) -> int:
    print(f"fleetd: {reason}", file=sys.stderr)
    return code


# -- verbs that are tools -------------------------------------------------------------------------------------------


def run_tool(arguments: Arguments) -> int:
    """Call the verb's tool and print its result."""
    verb = TOOL_VERBS[arguments.verb]
    params = verb.params(arguments)
    result = trio.run(_call, _socket(arguments), verb.tool, params)
    if verb.tool == "fleet_wait" and arguments.waitSeconds is None:
        while not result["isError"] and not _waited(result["structured"], every=arguments.all):
            result = trio.run(_call, _socket(arguments), verb.tool, params)
    return _print(arguments, result)


def _waited(structured: Mapping[str, Any], *, every: bool) -> bool:
    return not structured["running"] if every else bool(structured["ended"])


async def _call(socket: Path, tool: str, params: Mapping[str, Any]) -> dict[str, Any]:
    async with connect(socket) as client:
        called: dict[str, Any] = await client.request("fleetd/call", {"tool": tool, "arguments": params})
        return called


def _print(arguments: Arguments, result: Mapping[str, Any]) -> int:
    """One tool result; a failed one says its reason on stderr."""
    structured, text = result["structured"], str(result["text"])
    failed = bool(result["isError"])
    if arguments.json:
        print(json.dumps(structured, ensure_ascii=False))
    elif not failed:
        print(text)
    if not failed:
        return DONE
    return _say(str(structured.get("reason") or structured.get("message") or text), FAILED)


def _socket(arguments: Arguments) -> Path:
    """The daemon's socket, in a directory that only this user can have made."""
    directory = runtime_dir(arguments.runtime_dir, os.environ)
    try:
        check_runtime_dir(directory)
    except FileNotFoundError:
        raise NoDaemon(f"no daemon has run in {directory}: start it with fleetd up") from None
    return socket_path(directory)


# -- verbs about the daemon -----------------------------------------------------------------------------------------


def _request(arguments: Arguments, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    async def ask() -> dict[str, Any]:
        async with connect(_socket(arguments)) as client:
            answer: dict[str, Any] = await client.request(method, params)
            return answer

    return trio.run(ask)


def _show(arguments: Arguments, answer: Mapping[str, Any], text: str) -> int:
    print(json.dumps(answer, ensure_ascii=False) if arguments.json else text)
    return DONE


def _status(arguments: Arguments) -> int:
    answer = _request(arguments, "fleetd/status")
    text = (
        f"fleetd {answer['version']}, pid {answer['pid']}, up {answer['uptimeSeconds']} s, host {answer['host']}, "
        f"{answer['members']} members\nsocket {answer['socket']}\nconfig {answer['config'] or 'none'}"
    )
    return _show(arguments, answer, text)


def _reload(arguments: Arguments) -> int:
    answer = _request(arguments, "fleetd/reload")
    applied = ", ".join(answer["applied"]) or "nothing"
    lines = [f"applied: {applied}"]
    if answer["deferred"]:
        lines.append(f"waits for a restart: {', '.join(answer['deferred'])}")
    return _show(arguments, answer, "\n".join(lines))


def _down(arguments: Arguments) -> int:
    """Ask the daemon to end, and wait until its process has."""
    process = os.pidfd_open(int(_request(arguments, "fleetd/status")["pid"]))
    try:
        answer = _request(arguments, "fleetd/down", {"killMembers": arguments.kill_members})
        ended, _, _ = select.select([process], [], [], END_S)
    finally:
        os.close(process)
    if not ended:
        return _say(f"the daemon has not ended within {END_S:g} s: see its log", FAILED)
    return _show(arguments, answer, str(answer["message"]))


def _up(arguments: Arguments) -> int:
    try:
        refuse_own_member(os.environ, str(runtime_dir(arguments.runtime_dir, os.environ)))
    except OwnMember as no:
        return _say(str(no), FAILED)
    if arguments.foreground:
        from fleetd.daemon import main as serve

        return serve(arguments.runtime_dir, arguments.config)
    from fleetd.start import StartFailed, start

    try:
        answer = start(arguments.runtime_dir, arguments.config)
    except StartFailed as exc:
        return _say(str(exc), FAILED)
    return _show(arguments, answer, f"fleetd {answer['version']} is up, pid {answer['pid']}, host {answer['host']}")


def _attach(arguments: Arguments) -> int:
    from fleetd.attach import attach

    return attach(_socket(arguments), arguments.target)


def _mcp(arguments: Arguments) -> int:
    from fleetd.mcp.bridge import run_bridge, spawn_daemon
    from fleetd.mcp.relay import Started

    directory = runtime_dir(arguments.runtime_dir, os.environ)
    # Through a process that ends at once: the daemon must not stand below the agent that happened to need it first.
    up = [sys.executable, "-m", "fleetd", "--runtime-dir", str(directory), "up"]

    def start_daemon() -> Started:
        try:
            refuse_own_member(os.environ, str(directory))
        except OwnMember as no:
            raise OSError(str(no)) from None
        return spawn_daemon(up)

    return run_bridge(socket_path(directory), start_daemon)


def _hook(arguments: Arguments) -> int:
    from fleetd.hook import main as hand_over

    return hand_over([str(socket_path(runtime_dir(arguments.runtime_dir, os.environ)))])


def _doctor(arguments: Arguments) -> int:
    from fleetd.doctor import Weight, examine

    directory = runtime_dir(arguments.runtime_dir, os.environ)
    findings = list(examine(arguments.config, directory, os.environ, Path.cwd()))
    rows = [{"what": each.what, "weight": str(each.weight), "said": each.said} for each in findings]
    _show(arguments, {"findings": rows}, "\n".join(f"{row['weight']:8}{row['what']}: {row['said']}" for row in rows))
    return FAILED if any(each.weight is Weight.WRONG for each in findings) else DONE


def _init(arguments: Arguments) -> int:
    from fleetd.init import write_first

    try:
        agents = write_first(arguments.file)
    except OSError as exc:
        return _say(f"{arguments.file} cannot be written: {exc.strerror}", FAILED)
    print(f"{arguments.file} has a profile for {', '.join(agents)}: look at its accounts, then run fleetd doctor")
    return DONE


def _unit(arguments: Arguments) -> int:
    from fleetd.unit import Unquotable, unit

    chosen = arguments.runtime_dir or os.environ.get("FLEETD_RUNTIME_DIR")
    try:
        print(unit(sys.executable, arguments.config, Path(chosen) if chosen else None), end="")
    except Unquotable as no:
        return _say(str(no), FAILED)
    return DONE


def _prompt(_arguments: Arguments) -> int:
    print(Path(__file__).with_name("lead_prompt.md").read_text(encoding="utf-8"), end="")
    return DONE


def _record(arguments: Arguments) -> int:
    text = str(_request(arguments, "fleetd/record", {"target": arguments.target})["text"])
    if arguments.output is None:
        print(text, end="")
        return DONE
    try:
        arguments.output.write_text(text, encoding="utf-8")
    except OSError as exc:
        return _say(f"{arguments.output} cannot be written: {exc.strerror}", FAILED)
    print(f"{arguments.output}: read it before you send it; secrets are recognised by their looks only")
    return DONE


def _replay(arguments: Arguments) -> int:
    from fleetd.replay import replay

    return replay(arguments)


def _demo(arguments: Arguments) -> int:
    from fleetd.demo import demo

    return demo(host=arguments.host, fast=arguments.fast)


VERBS: Final[Mapping[str, Verb]] = {
    "up": _up,
    "down": _down,
    "status": _status,
    "reload": _reload,
    "attach": _attach,
    "record": _record,
    "replay": _replay,
    "demo": _demo,
    "mcp": _mcp,
    "hook": _hook,
    "prompt": _prompt,
    "doctor": _doctor,
    "init": _init,
    "unit": _unit,
}
