"""A model of the outage policy: any errors, checks, retunings and leaps of the clock, against the seed's sentences.

The oracle keeps the whole history and answers every question from it. Beside the policy run one policy per credential,
each fed its own credential's errors only: "different credentials never share evidence".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actors.actor import Message
from actors.clock import NS_PER_S
from actors.gate import GateCheck, GateRead
from actors.leads import Incident
from actors.outage import BackendErrorSeen, Cooling, Evidence, OutagePolicy, OutageSettings, Retune
from actors.turn import Outcome, Status, TurnEnded
from tests.actors.recorders import Clock, Recorder, driven
from tests.models.effort import modest

S = NS_PER_S
CREDENTIALS = ("anthropic-a", "openai-b", "google-c")
SEED = OutageSettings()


class Oracle:
    """What the seed says of everything that was told so far."""

    def __init__(self) -> None:
        self.settings = SEED
        self.errors: dict[str, dict[str, Evidence]] = defaultdict(dict)
        #: Per credential: when each cool-off began and when it ends.
        self.cool_offs: dict[str, list[tuple[int, int]]] = defaultdict(list)

    def end(self, credential: str) -> int:
        """The end of the credential's last cool-off."""
        return self.cool_offs[credential][-1][1] if self.cool_offs[credential] else 0

    def record(self, new: Evidence) -> list[Evidence] | None:
        """The evidence of the incident that this error makes."""
        if new.at_ns < self.end(new.credential):
            # "More errors during active cool-off do not extend its deadline and do not return another incident."
            return None
        # The same send counts once.
        self.errors[new.credential][new.ticket] = new
        # "After expiry, old evidence is cleared."
        fresh = {
            name: each for name, each in self.errors[new.credential].items() if each.at_ns >= self.end(each.credential)
        }
        # "Two errors for one credential within 60 seconds", "inclusive <= 60s".
        newest = max(each.at_ns for each in fresh.values())
        together = {name: each for name, each in fresh.items() if newest - each.at_ns <= self.settings.window_ns}
        # Where a reload makes the window longer, what the shorter one had let go does not come back.
        self.errors[new.credential] = together
        if len(together) < self.settings.threshold:
            return None
        # "Cool-off: 60 seconds, starting when the threshold is reached."
        self.cool_offs[new.credential].append((newest, newest + self.settings.cool_off_ns))
        return sorted(together.values(), key=lambda each: each.at_ns)

    def cooling(self, now: int, credentials: Iterable[str] = CREDENTIALS) -> dict[str, int]:
        return {
            name: end
            for name in credentials
            for began, end in self.cool_offs[name]
            # A cool-off that a late error opens has its time from the error, and may be over already.
            if now < end
        }


class PolicyMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.leads, self.mail = Recorder("leads"), Recorder("mail")
        self.policy = OutagePolicy(SEED, leads=self.leads, mail=self.mail)
        driven(self.policy, self.clock)
        self.oracle = Oracle()
        self.told: list[BackendErrorSeen] = []
        self.alone: dict[str, tuple[OutagePolicy, Recorder]] = {}
        for name in CREDENTIALS:
            leads = Recorder("leads")
            policy = OutagePolicy(SEED, leads=leads, mail=Recorder("mail"))
            driven(policy, self.clock)
            self.alone[name] = policy, leads

    @initialize(at=st.sampled_from([60 * S, 90_061 * S + 7]))
    def start(self, at: int) -> None:
        self.clock.ns = at

    # -- what happens --------------------------------------------------------------------------------------------

    @rule(
        credential=st.sampled_from(CREDENTIALS[:2] * 2 + CREDENTIALS[2:]),
        member=st.integers(1, 4),
        late_ns=st.sampled_from([0, 0, 0, 1, S, 59 * S, 60 * S]),
    )
    def a_turn_fails(self, credential: str, member: int, late_ns: int) -> None:
        """Late by as much as a window: at the threshold of two, the order of arrival makes no difference."""
        at = self.clock.ns - (late_ns if self.oracle.settings.threshold <= 2 else 0)
        number = len(self.told)
        evidence = Evidence(credential, f"m-{member}", f"t-{number}", f"p-{member % 2}", f"lead-{member % 3}", at)
        turn = TurnEnded(evidence.target, evidence.ticket, Outcome(Status.BACKEND_ERROR, reason="529"), at)
        self.tell(BackendErrorSeen(evidence, turn))

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def the_same_turn_is_told_again(self, data: st.DataObject) -> None:
        self.tell(data.draw(st.sampled_from(self.told)))

    @rule(step_ns=st.sampled_from([1, S, 59 * S, 60 * S - 1, 60 * S, 60 * S + 1, 30 * S]))
    def time_passes(self, step_ns: int) -> None:
        self.clock.ns += step_ns

    @precondition(lambda self: self.oracle.cooling(self.clock.ns))
    @rule(beside=st.sampled_from([-1, 0, 1]), data=st.data())
    def time_passes_to_the_end_of_a_cool_off(self, beside: int, data: st.DataObject) -> None:
        end = data.draw(st.sampled_from(sorted(self.oracle.cooling(self.clock.ns).values())))
        self.clock.ns = max(self.clock.ns, end + beside)

    @rule(
        threshold=st.sampled_from([1, 2, 2, 2, 3, 4]),
        window_s=st.sampled_from([1, 60, 60, 120]),
        cool_off_s=st.sampled_from([1, 60, 60, 300]),
        hold=st.booleans(),
    )
    def the_settings_are_reloaded(self, threshold: int, window_s: int, cool_off_s: int, hold: bool) -> None:
        settings = OutageSettings(threshold, window_s * S, cool_off_s * S, hold)
        before = self.policy.handle(Cooling())
        for policy in (self.policy, *(policy for policy, _ in self.alone.values())):
            policy.handle(Retune(settings))
        self.oracle.settings = settings
        # What cools already keeps its deadline.
        assert self.policy.handle(Cooling()) == before

    def tell(self, message: BackendErrorSeen) -> None:
        self.told.append(message)
        expected = self.oracle.record(message.evidence)
        told, mailed = len(self.leads.told), len(self.mail.told)
        self.policy.handle(message)
        policy, alone = self.alone[message.evidence.credential]
        known = len(alone.told)
        policy.handle(message)
        if expected is None:
            # The result goes on to mail, and no lead hears of it.
            assert self.mail.told[mailed:] == [message.turn]
            assert len(self.leads.told) == told
            assert len(alone.told) == known
            return
        # "It returns a new incident only on the threshold crossing", and the result travels with it.
        assert len(self.mail.told) == mailed
        (incident,) = self.leads.told[told:]
        assert isinstance(incident, Incident)
        self.is_told(incident, expected, message)
        (again,) = alone.told[known:]
        assert isinstance(again, Incident)
        assert (again.targets, again.until_ns) == (incident.targets, incident.until_ns)

    def is_told(self, incident: Incident, expected: list[Evidence], message: BackendErrorSeen) -> None:
        """ "The incident contains a stable event id, credential id, the distinct affected targets, evidence count,
        window, and remaining cool-off." """
        assert incident.credential == message.evidence.credential
        assert incident.cause == message.turn
        assert incident.evidence_count == len(expected)
        assert incident.until_ns == self.oracle.end(incident.credential)
        assert set(incident.targets) == {each.target for each in expected}
        assert set(incident.profiles) == {each.profile for each in expected}
        assert set(incident.leads) == {each.lead for each in expected}
        for named in (incident.targets, incident.profiles, incident.leads):
            assert len(named) == len(set(named))
        times = {each.target: each.at_ns for each in reversed(expected)}
        assert [times[target] for target in incident.targets] == sorted(times[target] for target in incident.targets)

    # -- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def what_cools_is_what_the_seed_says(self) -> None:
        assert self.policy.handle(Cooling()) == self.oracle.cooling(self.clock.ns)

    @invariant()
    def the_gate_says_the_same_and_passes_on_what_it_was_given(self) -> None:
        back = Recorder()
        asked = (CREDENTIALS[0], CREDENTIALS[2], "nobody's")
        shut = {"openai-b": self.clock.ns + 5}
        self.policy.handle(GateCheck("g-7", asked, back, shut))
        cooling = self.oracle.cooling(self.clock.ns, (CREDENTIALS[0], CREDENTIALS[2]))
        expected: Message = GateRead("g-7", shut, cooling, self.oracle.settings.hold_sends, self.clock.ns)
        assert back.told == [expected]

    @invariant()
    def there_is_at_most_one_incident_per_cool_off_and_no_cool_off_without_one(self) -> None:
        incidents = self.leads.only(Incident)
        assert len({incident.id for incident in incidents}) == len(incidents)
        for name in CREDENTIALS:
            ends = [incident.until_ns for incident in incidents if incident.credential == name]
            periods = self.oracle.cool_offs[name]
            assert ends == [end for _, end in periods]
            assert all(end <= began for (_, end), (began, _) in pairwise(periods))
        assert set(self.policy.handle(Cooling())) <= {incident.credential for incident in incidents}  # type: ignore[call-overload]

    @invariant()
    def every_result_is_passed_on_once(self) -> None:
        passed = [*self.mail.only(TurnEnded), *(incident.cause for incident in self.leads.only(Incident))]
        assert sorted(turn.ticket for turn in passed) == sorted(message.turn.ticket for message in self.told)

    @invariant()
    def its_repr_names_what_cools_and_counts_the_incidents(self) -> None:
        names, count = sorted(self.oracle.cooling(self.clock.ns)), len(self.leads.told)
        assert repr(self.policy) == f"<OutagePolicy {names} cooling, {count} incidents>"


TestPolicy = PolicyMachine.TestCase
TestPolicy.settings = modest(60, steps=40)
