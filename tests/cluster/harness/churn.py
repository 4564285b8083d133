"""Plans churn: pods with and without claims that come and go at once, resizes, and agents that are killed.

The plan is pure and depends on a seed only, so a run can be repeated. It is made of waves: everything in a wave happens
at the same time on all nodes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from harness.manifests import ALLOWED_AT_START, SLEEP, Object, claim, container, cpus, pod, template
from harness.memory import MI, amount, command, on_one_numa_node, with_tools

CLAIMED_CPUS: Final = 4  # at most, of the six CPUs of a node that are not withheld: two stay for the other containers
SHARED_PODS: Final = 3  # without claims of CPUs, on a node
CLAIMED: Final = "claimed"  # the last words of pods' names: with a claim of CPUs, and perhaps one of memory
MEMORY: Final = "memory"  # with a claim of memory only
SHARED: Final = "shared"  # without claims
WITH_CLAIMS: Final = (CLAIMED, MEMORY)
PAGES_MI: Final = 4  # of each claim of memory

# probabilities in each wave
CREATED: Final = 0.6  # of a new pod with a claim, and of one without; on each node
BRIEF: Final = 0.2  # of a new pod that ends by itself
BESIDE: Final = 0.4  # of a second container, without a claim, in a new pod
DELETED: Final = 0.25  # of each pod
RESIZED: Final = 0.25  # of each pod
WITH_MEMORY: Final = 0.6  # of a claim of memory, in a new pod
HOLDING: Final = 0.3  # of a pod with such a claim that keeps its pages; the others use them once, at their start

# ordinary memory of a claim; the limits in the spec below are above it, so that the claim's has to hold
ORDINARY: Final = "32Mi"
USE: Final = f"{' '.join(command('2Mi', PAGES_MI * MI))}; exec sleep 2147483647"
HOLD: Final = f"exec {' '.join(command('2Mi', PAGES_MI * MI, '-hold'))}"
# the names of their templates: pages with ordinary memory of the same NUMA node, or pages alone
MEMORY_CLAIMS: Final = ("memory-and-pages", "pages")
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
    shared: list[str] = field(default_factory=list)  # those without a claim of CPUs
    holding: set[str] = field(default_factory=set)  # those that keep their pages
    leaving: int = 0  # CPUs of the claims whose pods were deleted in the previous wave

    def wave(self, random: Random, number: int) -> Wave:
        """Plans a wave of this node."""
        pods = [*self.claimed, *self.shared]
        deleted = {name for name in pods if random.random() < DELETED}
        # Kubernetes 1.37: the kubelet repeats a change of CPUs without success while pages are in use
        fixed = deleted | self.holding
        resized = [name for name in pods if name not in fixed and random.random() < RESIZED]
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
            yield self._pod(name, random, self.claimed[name], with_memory=random.random() < WITH_MEMORY)
        if len(self.shared) < SHARED_PODS and random.random() < CREATED:
            with_memory = random.random() < WITH_MEMORY
            name = f"{self.node}-{number}-{MEMORY if with_memory else SHARED}"
            self.shared.append(name)
            yield self._pod(name, random, 0, with_memory=with_memory)
        if random.random() < BRIEF:
            brief = container("main", script=f"{ALLOWED_AT_START}; sleep 1")
            yield self._placed(pod(f"{self.node}-{number}-brief", brief, restart="Never"))

    def _pod(self, name: str, random: Random, count: int, *, with_memory: bool) -> Object:
        """Builds a pod with a claim for this many CPUs, if any, and perhaps with one of memory."""
        claims = [*([template_name(count)] if count else []), *([random.choice(MEMORY_CLAIMS)] if with_memory else [])]
        script = SLEEP
        if with_memory:
            holds = random.random() < HOLDING
            if holds:
                self.holding.add(name)
            script = f"{ALLOWED_AT_START}; {HOLD if holds else USE}"
        main = container("main", claims, script)
        main["resources"] = {**main.get("resources", {}), **random.choice(SIZES)}
        made = pod(name, main, *([container("beside")] if random.random() < BESIDE else []))
        made["spec"]["resourceClaims"] = [{"name": item, "resourceClaimTemplateName": item} for item in claims]
        return self._placed(with_tools(made) if with_memory else made)

    def _placed(self, made: Object) -> Object:
        made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": self.node}
        return made


def template_name(amount: int) -> str:
    """Returns the name of the template of claims for an amount of CPUs."""
    return f"cpus-{amount}"


def templates() -> list[Object]:
    """Returns the templates of the claims that the pods use."""
    pages = amount("2Mi", f"{PAGES_MI}Mi")
    claims: list[Object] = [
        *(claim(template_name(count), cpus(count)) for count in (1, 2)),
        on_one_numa_node(claim(MEMORY_CLAIMS[0], amount("memory", ORDINARY), pages)),
        claim(MEMORY_CLAIMS[1], pages),
    ]
    return [template(item) for item in claims]


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
