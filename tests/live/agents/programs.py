"""The real agent programs, installed from npm into a cache folder of the tests' own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import msgspec

#: How long one program's installation may take, in seconds.
INSTALL_S: Final = 300.0


class Package(msgspec.Struct, frozen=True):
    """One program on npm, at the version that its captures were made of."""

    name: str
    version: str
    command: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


CLAUDE: Final = Package("@anthropic-ai/claude-code", "2.1.332", "claude")
CODEX: Final = Package("@openai/codex", "0.171.0", "codex")
GEMINI: Final = Package("@google/gemini-cli", "0.61.0", "gemini")
OPENCODE: Final = Package("opencode-ai", "1.18.33", "opencode")
QWEN: Final = Package("@qwen-code/qwen-code", "0.24.4", "qwen")

#: Programs that were asked for: where they are, or why they are not.
_tried: dict[Package, Path | NotInstalled] = {}
#: What became of each program that was asked for: for the summary that says which were run.
found: dict[str, str] = {}


class NotInstalled(Exception):
    """The program could not be installed; the message says why."""


def cache() -> Path:
    """Where the programs are kept between runs: ``FLEETD_TEST_AGENTS``, or a folder in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("FLEETD_TEST_AGENTS") or f"{home}/fleetd-test-agents")


def install(package: Package) -> Path:
    """The program's path, after it has been installed if it was missing. It is tried once in a run.

    Raises:
        NotInstalled: npm is missing, failed or took too long.
    """
    if package not in _tried:
        try:
            _tried[package] = _installed(package)
        except NotInstalled as no:
            _tried[package] = no
    if isinstance(result := _tried[package], NotInstalled):
        raise result
    return result


def _installed(package: Package) -> Path:
    folder = cache() / f"{package.command}-{package.version}"
    program = folder / "node_modules" / ".bin" / package.command
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        argv = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--no-progress", str(package)]
        try:
            subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_S, check=True)
        except FileNotFoundError:
            found[str(package)] = "not run: npm is missing"
            raise NotInstalled("npm is missing: install Node.js to run the real agent programs") from None
        except subprocess.TimeoutExpired:
            found[str(package)] = f"not run: its installation took more than {INSTALL_S:g} s"
            raise NotInstalled(f"{package} was not installed within {INSTALL_S:g} s") from None
        except subprocess.CalledProcessError as exc:
            found[str(package)] = "not run: its installation failed"
            raise NotInstalled(f"{package} was not installed: {exc.stderr.strip()[-400:]}") from None
    found[str(package)] = "run"
    return program
