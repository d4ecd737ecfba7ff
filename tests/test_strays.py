"""Processes that came from a member and stand in no pane's tree."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fleetd.peer import Process, ancestry, process_start
from fleetd.strays import Stray, refuse_strays

RUN = "/run/user/1/fleetd"


def process(session: int) -> tuple[Process, ...]:
    """A process that exists no more, of this session."""
    return (Process(2**22 + 1, 1, 1, session, 0, 1),)


def test_a_process_in_the_session_of_a_pane_is_no_person() -> None:
    started = process_start(os.getpid())
    assert started is not None
    with pytest.raises(Stray, match="came from member m-1"):
        refuse_strays(process(os.getpid()), {(os.getpid(), started): "m-1"}, RUN)


def test_a_session_outlives_the_root_process_that_led_it() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(Stray, match="m-2"):
        refuse_strays(process(gone.pid), {(gone.pid, 5): "m-2"}, RUN)


def test_a_session_whose_leader_has_the_number_of_an_old_root_is_another_one() -> None:
    refuse_strays(process(os.getpid()), {(os.getpid(), 5): "m-1"}, RUN)


def test_a_process_of_a_session_of_its_own_is_a_person() -> None:
    refuse_strays(process(77), {(78, 5): "m-1"}, RUN)


@pytest.mark.parametrize(("value", "stray"), [(f"m-3 {RUN}", True), ("m-3 /run/of/another", False), ("", False)])
@pytest.mark.live
def test_the_environment_that_a_process_was_started_with_tells_whose_member_it_was(value: str, stray: bool) -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={"PATH": os.defpath, "FLEETD_MEMBER": value})
    try:
        alone = ancestry(child.pid)[:1]
        if stray:
            with pytest.raises(Stray, match="m-3"):
                refuse_strays(alone, {}, RUN)
        else:
            refuse_strays(alone, {}, RUN)
    finally:
        child.communicate()
