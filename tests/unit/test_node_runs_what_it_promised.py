"""What is promised to containers is what the machine does, in whatever order the runtime carries out its procedures.

Each history begins procedures, advances them step by step in any order, fails what can fail, and restarts the agent.
`--histories=N` plays N of them for each runtime. A failure shows the shortest part of its history that fails too.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest
from nodes import uid
from runtime_generations import GENERATIONS, Generation
from runtime_model import ModelNode

from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.claims.ledger import Ledger
from dracpu_agent.claims.request import Ask, ClaimRequest, Json
from dracpu_agent.devices.device import Device, Taint
from dracpu_agent.drivers.driver import Driver
from dracpu_agent.placement import reply
from dracpu_agent.placement.container import Container
from dracpu_api.names import DriverNames

Action = Callable[[], object]

STEPS = 120


class Kind(NamedTuple):
    """Actions of one kind, and how often this kind is chosen."""

    weight: int
    actions: Sequence[tuple[str, Action]]


class History:
    """One node's history. `excused` is true from an event that allows short overlaps until everything is at rest."""

    def __init__(self, generation: Generation, *, calm: bool, others: Sequence[Driver[Any, Any]] = ()) -> None:
        self.node = ModelNode(generation, others)
        self.calm = calm
        self.excused = False
        self.played: list[str] = []
        self._created = 0

    def act(self, name: str, action: Action) -> None:
        self.played.append(name)
        action()
        if not self.excused:
            self.check()

    def play(self, choices: random.Random) -> None:
        for _ in range(STEPS):
            kinds = self.possible()
            (kind,) = choices.choices(kinds, [kind.weight for kind in kinds])
            self.act(*choices.choice(kind.actions))
        self.rest()

    def replay(self, names: Sequence[str]) -> None:
        """Plays these actions, without those that are not possible."""
        for name in names:
            found = [action for kind in self.possible() for known, action in kind.actions if known == name]
            if found:
                self.act(name, found[0])
        self.rest()

    def rest(self) -> None:
        self.node.rest()
        self.check()
        assert self.node.phantoms() == []
        assert self.node.needless == []
        if self.calm:
            assert self.node.refusals == []
        self.excused = False

    def check(self) -> None:
        assert self.node.overlaps() == []
        assert self.node.astray() == []

    def possible(self) -> list["Kind"]:
        """What can happen now, by kind."""
        kinds = [*self._of_the_runtime(), *self._of_the_agent(), *self._of_the_kubelet()]
        if not self.calm:
            kinds += self._of_bad_days()
        return [kind for kind in kinds if kind.actions] or [Kind(1, [("rest", self.rest)])]

    def _of_the_runtime(self) -> Iterator["Kind"]:
        procedures = enumerate(self.node.procedures)
        yield Kind(
            30, [(f"advance {known.container.id}", partial(self.node.advance, number)) for number, known in procedures]
        )

    def _of_the_agent(self) -> Iterator["Kind"]:
        node = self.node
        if node.can_synchronize():
            yield Kind(10, [("synchronize", node.synchronize)])
        if not node.connected:
            return
        if node.push is not None:
            answer = ("answer push", node.answer_push)
            yield Kind(10, [("apply push", node.apply_push) if node.push.applied is None else answer])
        elif node.state.containers.next_push():
            yield Kind(10, [("send push", node.send_push)])
        ready = [known for known in node.waiting if node.may_answer(known)]
        yield Kind(10, [(f"answer {known}", partial(node.answer_prepare, known)) for known in ready])

    def _of_the_kubelet(self) -> Iterator["Kind"]:
        node = self.node
        if len(node.containerd.containers) + len(node.procedures) < 4:
            yield Kind(4, [("create shared", partial(self._create, None))])
            yield Kind(10, [(f"create pinned {known}", partial(self._create, known)) for known in node.answered])
        yield Kind(15, [(f"start {name}", partial(node.start, name)) for name in node.startable()])
        yield Kind(5, [(f"resize {name}", partial(node.resize, name)) for name in node.idle()])
        yield Kind(1, [(f"end {name}", partial(node.end, name)) for name in node.idle()])
        yield Kind(1, [(f"exit of {name}", partial(node.exit, name)) for name in node.running_processes()])
        yield Kind(3, [(f"remove {name}", partial(node.remove, name)) for name in node.ended()])
        if node.connected:
            fresh = [number for number in (1, 2) if uid(number) not in {*node.answered, *node.waiting}]
            yield Kind(5, [(f"prepare {known}", partial(node.prepare, known, "cpudevnuma001", 2)) for known in fresh])
            # a later step of Prepare fails, and the kubelet does not repeat it
            yield Kind(1, [(f"undo {known}", partial(node.undo, known)) for known in node.waiting])
        over = [known for known in node.answered if not node.in_a_call(known)]
        yield Kind(1, [(f"unprepare {known}", partial(node.unprepare, known)) for known in over])

    def _of_bad_days(self) -> Iterator["Kind"]:
        node, runtime = self.node, self.node.containerd
        names = list(runtime.containers)
        yield Kind(1, [("rest", self.rest)])
        yield Kind(1, [("create shared, refused by others", partial(self._create, None, refused=True))])
        yield Kind(1, [(f"start of {name} fails", partial(runtime.failing_starts.add, name)) for name in names])
        yield self._excused(1, [("restart the agent", node.restart_agent)])
        if node.connected:
            yield self._excused(1, [("disconnect", node.disconnect)])
            busy = [known.container.id for known in node.procedures]
            yield self._excused(1, [(f"overdue {name}", partial(node.expire, name)) for name in busy])
            if node.push is None:
                late = [(f"answer {known} now", partial(node.answer_prepare, known)) for known in node.waiting]
                yield self._excused(2, late)
        yield self._excused(
            2, [(f"updates of {name} fail", partial(runtime.failing_updates.add, name)) for name in names]
        )

    def _excused(self, weight: int, actions: Sequence[tuple[str, Action]]) -> "Kind":
        def act(action: Action) -> None:
            self.excused = True
            action()

        return Kind(weight, [(name, partial(act, action)) for name, action in actions])

    def _create(self, claim_uid: str | None, *, refused: bool = False) -> None:
        self._created += 1
        name = f"{'shared' if claim_uid is None else 'pinned'}-{self._created}"
        if refused:
            self.node.refused_by_others.add(name)
        self.node.create(name, claim_uid)


def shortest(generation: Generation, names: Sequence[str], *, calm: bool) -> list[str]:
    """Leaves out every action without which the history fails as well."""
    kept = list(names)
    for position in reversed(range(len(kept))):
        shorter = kept[:position] + kept[position + 1 :]
        try:
            History(generation, calm=calm).replay(shorter)
        except AssertionError:
            kept = shorter
    return kept


@pytest.mark.timeout(1800)  # for the many histories of a deep run
@pytest.mark.parametrize("calm", [True, False], ids=["nothing fails", "bad days"])
@pytest.mark.parametrize("generation", GENERATIONS, ids=repr)
def test_no_process_runs_on_another_claims_cpus(generation, calm, histories):
    for number in range(histories):
        history = History(generation, calm=calm)
        try:
            history.play(random.Random(number))
        except AssertionError as error:
            steps = "\n".join(shortest(generation, history.played, calm=calm))
            pytest.fail(f"history {number}: {error}\n\n{steps}")


class CrowdedHistory(History):
    """A history in which a reply has room for one update, so that creations are refused until the CPUs are clear."""

    def __init__(self, generation: Generation) -> None:
        super().__init__(generation, calm=False)
        self.node.replies_at_rest = 20

    def _of_bad_days(self) -> Iterator["Kind"]:
        if self.node.generation.info.unsolicited_updates:
            yield from super()._of_bad_days()
        else:  # a second reply counts as applied: whether one of two fails does not depend on the room
            yield Kind(1, [("rest", self.rest)])


@pytest.mark.timeout(1800)  # for the many histories of a deep run
@pytest.mark.parametrize("generation", GENERATIONS, ids=repr)
def test_no_process_runs_on_another_claims_cpus_where_a_reply_has_room_for_one_update(
    generation, histories, monkeypatch
):
    monkeypatch.setattr(reply, "ROOM", 80)
    for number in range(histories):
        CrowdedHistory(generation).play(random.Random(number))


class Weights(Driver[Ask, HeldClaim[Any]]):
    """A driver without devices, which gives every container one weight. The weight changes."""

    names = DriverNames("dra.weights", "example.com/weight", "DRAWEIGHTS_")
    claim_type = HeldClaim

    def __init__(self) -> None:
        super().__init__(Ledger())
        self.weight = 100

    def limits(self, container: Container, devices: frozenset[str]) -> dict[str, str]:
        return {"cpu.weight": str(self.weight)}

    def devices(self, taints: tuple[Taint, ...]) -> tuple[Device, ...]:
        return ()

    def read(self, ref: object, claim: Json) -> ClaimRequest[Ask]:
        raise AssertionError("it has no devices to claim")

    def choose(self, request: ClaimRequest[Ask]) -> tuple[Any, ...]:
        raise AssertionError("it has no devices to claim")


class WeightedHistory(History):
    """A history in which what limits the containers changes, too."""

    def __init__(self, generation: Generation) -> None:
        self.weights = Weights()
        super().__init__(generation, calm=False, others=[self.weights])
        self.node.replies_at_rest = 20  # runtimes without pushes get changed limits in replies

    def rest(self) -> None:
        super().rest()
        expected = {"cpu.weight": str(self.weights.weight)}
        assert [name for name, limits in self.node.limits().items() if limits != expected] == []

    def _of_the_agent(self) -> Iterator[Kind]:
        yield from super()._of_the_agent()
        yield Kind(5, [("change the weight", self._change)])

    def _of_bad_days(self) -> Iterator[Kind]:
        if self.node.generation.info.unsolicited_updates:
            yield from super()._of_bad_days()
        else:  # a second reply counts as applied: two failures in a row stay unknown
            yield Kind(1, [("rest", self.rest)])

    def _change(self) -> None:
        self.weights.weight += 1
        self.node.state.refresh()


@pytest.mark.timeout(1800)  # for the many histories of a deep run
@pytest.mark.parametrize("generation", GENERATIONS, ids=repr)
def test_every_process_has_its_limits_when_nothing_is_under_way(generation, histories):
    for number in range(histories):
        history = WeightedHistory(generation)
        try:
            history.play(random.Random(number))
        except AssertionError as error:
            pytest.fail(f"history {number}: {error}\n\n" + "\n".join(history.played))
