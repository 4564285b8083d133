"""Plans churn: pods with and without claims that come and go at once, resizes, and agents that are killed.

The plan is pure and depends on a seed only, so a run can be repeated. It is made of waves: everything in a wave happens
at the same time on all nodes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from harness.manifests import ALLOWED_AT_START, Object, claim, container, cpus, pod

CLAIMED_CPUS: Final = 4  # at most, of the six CPUs of a node that are not withheld: two stay for the other containers
SHARED_PODS: Final = 3  # on a node
BRIEF: Final = f"{ALLOWED_AT_START}; sleep 1"  # ends by itself

# requests and limits of a container; the limits stay above the requests, so that the QoS class does not change
SIZES: Final[Sequence[Object]] = tuple(
    {"requests": {"cpu": f"{request}m", "memory": "8Mi"}, "limits": {"cpu": f"{limit}m", "memory": memory}}
    for request, limit, memory in ((50, 2000, "48Mi"), (100, 3000, "64Mi"), (20, 1500, "56Mi"))
)


@dataclass(frozen=True, slots=True)
class Resize:
    """An in-place resize of the main container of a pod."""

    pod: str
    resources: Object

    @property
    def patch(self) -> Object:
        """The patch of the subresource `resize`."""
        return {"spec": {"containers": [{"name": "main", "resources": self.resources}]}}


@dataclass(frozen=True, slots=True)
class Wave:
    """What happens at the same time."""

    created: tuple[Object, ...] = ()
    deleted: tuple[str, ...] = ()
    resized: tuple[Resize, ...] = ()
    killed: tuple[str, ...] = ()  # nodes whose agents are killed

    @property
    def operations(self) -> int:
        """How many operations the wave has."""
        return len(self.created) + len(self.deleted) + len(self.resized) + len(self.killed)


@dataclass(slots=True)
class _Planned:
    """The pods of one node after the waves so far."""

    node: str
    claimed: dict[str, int] = field(default_factory=dict)  # pod -> CPUs of its claim
    shared: list[str] = field(default_factory=list)
    leaving: int = 0  # CPUs of the claims whose pods were deleted in the previous wave

    def wave(self, random: Random, number: int) -> Wave:
        """Plans a wave of this node."""
        deleted = [name for name in [*self.claimed, *self.shared] if random.random() < 0.4]
        resized = [name for name in [*self.claimed, *self.shared] if name not in deleted and random.random() < 0.4]
        leaving = sum(amount for name, amount in self.claimed.items() if name in deleted)
        self.claimed = {name: amount for name, amount in self.claimed.items() if name not in deleted}
        self.shared = [name for name in self.shared if name not in deleted]
        created = list(self._created(random, number, leaving))
        self.leaving = leaving
        sizes = [Resize(name, random.choice(SIZES)) for name in resized]
        return Wave(tuple(created), tuple(deleted), tuple(sizes))

    def _created(self, random: Random, number: int, leaving: int) -> Iterator[Object]:
        free = CLAIMED_CPUS - sum(self.claimed.values()) - leaving - self.leaving
        while free > 0 and random.random() < 0.8:
            amount = random.randint(1, min(2, free))
            free -= amount
            name = f"{self.node}-{number}-claimed-{len(self.claimed)}"
            self.claimed[name] = amount
            beside = [container("beside")] if random.random() < 0.3 else []
            yield self._pod(name, random, *beside, claimed=amount)
        while len(self.shared) < SHARED_PODS and random.random() < 0.8:
            name = f"{self.node}-{number}-shared-{len(self.shared)}"
            self.shared.append(name)
            others = [container(f"beside-{index}") for index in range(random.randint(0, 2))]
            yield self._pod(name, random, *others)
        if random.random() < 0.3:
            brief = pod(f"{self.node}-{number}-brief", container("main", script=BRIEF), restart="Never")
            yield self._placed(brief)

    def _pod(self, name: str, random: Random, *beside: Object, claimed: int = 0) -> Object:
        main = container("main", ["cpus"] if claimed else [])
        main["resources"] = {**main.get("resources", {}), **random.choice(SIZES)}
        made = pod(name, main, *beside)
        if claimed:
            made["spec"]["resourceClaims"] = [{"name": "cpus", "resourceClaimTemplateName": template_name(claimed)}]
        return self._placed(made)

    def _placed(self, made: Object) -> Object:
        made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self.node}
        return made


def template_name(amount: int) -> str:
    """Returns the name of the template of claims for an amount of CPUs."""
    return f"cpus-{amount}"


def templates() -> list[Object]:
    """Returns the templates of the claims that the pods use."""
    spec: dict[int, Any] = {amount: claim("", cpus(amount))["spec"] for amount in (1, 2)}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": template_name(amount)},
            "spec": {"spec": spec[amount]},
        }
        for amount in spec
    ]


def plan(seed: int, nodes: Sequence[str], waves: int, kill_every: int) -> Iterator[Wave]:
    """Yields waves. In every `kill_every`th, the agent of one node is killed, of each node in turn."""
    random = Random(seed)
    planned = [_Planned(node) for node in nodes]
    for number in range(waves):
        parts = [node.wave(random, number) for node in planned]
        kills, is_kill = divmod(number + 1, kill_every)
        killed = () if is_kill else (nodes[(kills - 1) % len(nodes)],)
        yield Wave(
            tuple(item for part in parts for item in part.created),
            tuple(name for part in parts for name in part.deleted),
            tuple(resize for part in parts for resize in part.resized),
            killed,
        )
