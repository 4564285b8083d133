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
CLAIMED: Final = "claimed"  # the last words of pods' names
SHARED: Final = "shared"

# probabilities in each wave
CREATED: Final = 0.6  # of a new pod with a claim, and of one without; on each node
BRIEF: Final = 0.2  # of a new pod that ends by itself
BESIDE: Final = 0.4  # of a second container, without a claim, in a new pod
DELETED: Final = 0.25  # of each pod
RESIZED: Final = 0.25  # of each pod

# requests and limits of a container; the limits stay above the requests, so that the QoS class does not change
SIZES: Final[Sequence[Object]] = tuple(
    {"requests": {"cpu": f"{request}m", "memory": "8Mi"}, "limits": {"cpu": f"{limit}m", "memory": memory}}
    for request, limit, memory in ((50, 2000, "48Mi"), (100, 3000, "64Mi"), (20, 1500, "56Mi"))
)


@dataclass(frozen=True, slots=True)
class Wave:
    """What happens at the same time."""

    created: tuple[Object, ...] = ()
    deleted: tuple[str, ...] = ()
    resized: tuple[str, ...] = ()  # pods whose main container gets the resources `size`
    size: Object = field(default_factory=dict)
    killed: tuple[str, ...] = ()  # nodes whose agents are killed

    @property
    def patch(self) -> Object:
        """The patch of the subresource `resize` of the resized pods."""
        return {"spec": {"containers": [{"name": "main", "resources": self.size}]}}


@dataclass(slots=True)
class _Planned:
    """The pods of one node after the waves so far."""

    node: str
    claimed: dict[str, int] = field(default_factory=dict)  # pod -> CPUs of its claim
    shared: list[str] = field(default_factory=list)
    leaving: int = 0  # CPUs of the claims whose pods were deleted in the previous wave

    def wave(self, random: Random, number: int) -> Wave:
        """Plans a wave of this node."""
        pods = [*self.claimed, *self.shared]
        deleted = {name for name in pods if random.random() < DELETED}
        resized = [name for name in pods if name not in deleted and random.random() < RESIZED]
        leaving = sum(self.claimed.pop(name, 0) for name in deleted)
        self.shared = [name for name in self.shared if name not in deleted]
        created = list(self._created(random, number, leaving))
        self.leaving = leaving
        return Wave(tuple(created), tuple(name for name in pods if name in deleted), tuple(resized))

    def _created(self, random: Random, number: int, leaving: int) -> Iterator[Object]:
        free = CLAIMED_CPUS - sum(self.claimed.values()) - leaving - self.leaving
        if free > 0 and random.random() < CREATED:
            name = f"{self.node}-{number}-{CLAIMED}"
            self.claimed[name] = random.randint(1, min(2, free))
            beside = [container("beside")] if random.random() < BESIDE else []
            yield self._pod(name, random, *beside, claimed=self.claimed[name])
        if len(self.shared) < SHARED_PODS and random.random() < CREATED:
            name = f"{self.node}-{number}-{SHARED}"
            self.shared.append(name)
            beside = [container("beside")] if random.random() < BESIDE else []
            yield self._pod(name, random, *beside)
        if random.random() < BRIEF:
            brief = container("main", script=f"{ALLOWED_AT_START}; sleep 1")
            yield self._placed(pod(f"{self.node}-{number}-brief", brief, restart="Never"))

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
            tuple(name for part in parts for name in part.resized),
            random.choice(SIZES),
            killed,
        )
