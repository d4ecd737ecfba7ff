"""A model of the quarantine: exhaustions, repeats, new cooldowns and checks, against what is written about it.

The oracle is a log: the deadline of a credential is what its newest exhaustion says, and nothing else is remembered.
"""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from actors.actor import Message
from actors.clock import NS_PER_S
from actors.gate import GateCheck
from actors.quarantine import ExhaustionSeen, Quarantine, Quarantined, SetCooldown
from actors.turn import Outcome, Status, TurnEnded
from tests.actors.recorders import Clock, Recorder, driven
from tests.models.effort import modest

S = NS_PER_S
DAY = 24 * 3600 * S
CREDENTIALS = ("anthropic-a", "openai-b", "google-c")


class QuarantineMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock(7 * S)
        self.order: list[tuple[str, Message]] = []
        self.quarantine = Quarantine(1800 * S, policy=Recorder("policy", self.order), mail=Recorder("mail", self.order))
        driven(self.quarantine, self.clock)
        self.cooldown = 1800 * S
        #: What happened: the credential, and the end that it was given.
        self.log: list[tuple[str, int]] = []
        self.turns: list[TurnEnded] = []

    def shut(self) -> dict[str, int]:
        """ "A repeat restarts the one deadline of its credential": the newest entry of each, while it runs."""
        return {name: end for name, end in dict(self.log).items() if self.clock.ns < end}

    # -- what happens --------------------------------------------------------------------------------------------

    @rule(
        credential=st.sampled_from(CREDENTIALS),
        resets_in_ns=st.none() | st.sampled_from([-1, 0, S, 59 * S, 60 * S, 61 * S, 7200 * S, DAY, DAY + 1, 30 * DAY]),
    )
    def a_quota_is_used_up(self, credential: str, resets_in_ns: int | None) -> None:
        number = len(self.turns)
        outcome = Outcome(Status.EXHAUSTED, reason="limit", resets_in_ns=resets_in_ns)
        turn = TurnEnded(f"m-{number}", f"t-{number}", outcome, self.clock.ns)
        # "It lasts until the program says that the quota comes back, or for a configured while where that is not
        # known"; "after a day at most the credential is tried again"; and a minute is the shortest closing.
        if resets_in_ns is None:
            length = self.cooldown
        elif resets_in_ns > DAY:
            length = DAY
        else:
            length = resets_in_ns if resets_in_ns > 60 * S else 60 * S
        self.turns.append(turn)
        self.log.append((credential, self.clock.ns + length))
        before = len(self.order)
        self.quarantine.handle(ExhaustionSeen(credential, turn))
        assert self.order[before:] == [("mail", turn)]

    @rule(step_ns=st.sampled_from([1, S, 60 * S - 1, 60 * S, 1800 * S, DAY]))
    def time_passes(self, step_ns: int) -> None:
        self.clock.ns += step_ns

    @rule(beside=st.sampled_from([-1, 0, 1]), data=st.data())
    def time_passes_to_an_end(self, beside: int, data: st.DataObject) -> None:
        if shut := sorted(self.shut().values()):
            self.clock.ns = max(self.clock.ns, data.draw(st.sampled_from(shut)) + beside)

    @rule(seconds=st.sampled_from([1, 60, 1800, 86_400]))
    def the_cooldown_is_reloaded(self, seconds: int) -> None:
        """ "Deadlines that run already stay." """
        self.cooldown = seconds * S
        self.quarantine.handle(SetCooldown(self.cooldown))

    @rule(credentials=st.lists(st.sampled_from((*CREDENTIALS, "nobody's")), unique=True).map(tuple))
    def the_gate_is_checked(self, credentials: tuple[str, ...]) -> None:
        """The check goes on to the policy, with the ends of the credentials that it asks for and nothing else new."""
        check = GateCheck("g-1", credentials, Recorder("back"))
        before = len(self.order)
        self.quarantine.handle(check)
        shut = {name: end for name, end in self.shut().items() if name in credentials}
        assert self.order[before:] == [("policy", msgspec.structs.replace(check, exhausted_until=shut))]

    # -- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def what_is_shut_is_what_the_log_says(self) -> None:
        assert self.quarantine.handle(Quarantined()) == self.shut()
        assert repr(self.quarantine) == f"<Quarantine {sorted(self.shut())} exhausted>"

    @invariant()
    def no_closing_outlives_its_evidence_by_more_than_a_day(self) -> None:
        shut = self.quarantine.handle(Quarantined())
        assert all(end <= self.clock.ns + DAY for end in shut.values())  # type: ignore[attr-defined]

    @invariant()
    def every_result_reaches_mail_once(self) -> None:
        assert [message for name, message in self.order if name == "mail"] == self.turns


TestQuarantine = QuarantineMachine.TestCase
TestQuarantine.settings = modest(30, steps=30)
