"""The churn of the cluster tests is planned from a seed, and every wave of it can be carried out."""

import pytest
from harness.churn import CLAIMED_CPUS, SHARED_PODS, Wave, plan, templates
from harness.manifests import Object

NODES = ("vm1", "vm2")
SEEDS = range(20)


def waves(seed: int = 1, count: int = 40) -> list[Wave]:
    return list(plan(seed, NODES, count, 9))


def name_of(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def node_of(pod: Object) -> str:
    return str(pod["spec"]["nodeSelector"]["kubernetes.io/hostname"])


def claimed_by(pod: Object) -> int:
    """Returns the CPUs that a pod's claims ask for."""
    return sum(int(asked.get("dra.cpu/cpu", 0)) for asked in asked_by(pod))


def asked_by(pod: Object) -> list[Object]:
    """Returns the capacity in each request of a pod's claims."""
    names = [entry["resourceClaimTemplateName"] for entry in pod["spec"]["resourceClaims"]]
    return [
        request["exactly"]["capacity"]["requests"]
        for template in templates()
        if template["metadata"]["name"] in names
        for request in template["spec"]["spec"]["devices"]["requests"]
    ]


def test_equal_seeds_give_equal_waves_and_others_do_not() -> None:
    assert waves(1) == waves(1) != waves(2)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_pod_is_deleted_and_resized_only_after_its_creation_and_before_its_deletion(seed: int) -> None:
    alive: set[str] = set()
    created: list[str] = []
    for wave in waves(seed):
        assert alive >= set(wave.deleted)
        assert alive - set(wave.deleted) >= set(wave.resized)
        alive = (alive - set(wave.deleted)) | {name_of(pod) for pod in wave.created}
        created += map(name_of, wave.created)
    assert len(created) == len(set(created))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_claims_of_a_node_leave_cpus_for_the_other_containers(seed: int) -> None:
    alive: dict[str, Object] = {}
    leaving: list[Object] = []
    for wave in waves(seed):
        former, leaving = leaving, [alive.pop(name) for name in wave.deleted]
        alive |= {name_of(pod): pod for pod in wave.created}
        for node in NODES:
            here = [pod for pod in alive.values() if node_of(pod) == node]
            # a deleted pod may hold its claim until the next wave
            holding = [*here, *(pod for pod in former + leaving if node_of(pod) == node)]
            assert sum(map(claimed_by, holding)) <= CLAIMED_CPUS
            shared = [pod for pod in here if not claimed_by(pod) and not name_of(pod).endswith("brief")]
            assert len(shared) <= SHARED_PODS


@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_of_operation_happens_on_both_nodes(seed: int) -> None:
    plans = waves(seed, 100)
    created = [(node_of(pod), bool(claimed_by(pod))) for wave in plans for pod in wave.created]
    assert set(created) == {(node, claimed) for node in NODES for claimed in (True, False)}
    for names in (
        [name for wave in plans for name in wave.resized],
        [name for wave in plans for name in wave.deleted],
    ):
        kinds = {tuple(name.split("-")[::2]) for name in names}  # node and kind
        assert kinds >= {(node, kind) for node in NODES for kind in ("claimed", "memory", "shared")}
    assert sorted({name for wave in plans for name in wave.killed}) == list(NODES)


def test_a_resize_changes_the_main_container_s_resources_and_keeps_the_qos_class() -> None:
    for wave in waves():
        (main,) = wave.patch["spec"]["containers"]
        assert main["name"] == "main"
        assert main["resources"]["requests"] != main["resources"]["limits"]


def test_pods_claim_memory_with_and_without_cpus_and_some_keep_their_pages() -> None:
    made = [pod for wave in waves() for pod in wave.created]
    with_memory = [pod for pod in made if any("size" in asked for asked in asked_by(pod))]
    assert {bool(claimed_by(pod)) for pod in with_memory} == {True, False}
    assert {len([asked for asked in asked_by(pod) if "size" in asked]) for pod in with_memory} == {1, 2}
    keeping = {name_of(pod) for pod in with_memory if "-hold" in str(pod["spec"]["containers"])}
    assert keeping
    assert keeping < {name_of(pod) for pod in with_memory}
    assert not keeping & {name for wave in waves() for name in wave.resized}
