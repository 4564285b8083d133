"""What the choice for a claim depends on is read anew whenever the driver chooses, and only then."""

from nodes import claim_object, container, ref, share, uid
from transacting import Agent, Claims, Silent

from dracpu_agent.work.transactions import ClaimTransactions

NUMA1 = "cpudevnuma001"


async def test_what_a_choice_depends_on_is_read_exactly_when_the_driver_chooses(tmp_path):
    claims = Claims(claim_object(1, [share(NUMA1, 2)]))
    agent = Agent(tmp_path, claims)
    looks: list[str] = []

    async def look(request):
        looks.append(request.digest)

    agent.transactions = _looking(agent, claims, look)
    async with agent.alive():
        await agent.transactions.prepare(ref(1))
        await agent.transactions.prepare(ref(1))
        assert len(looks) == 1, "the second answer came from the ledger"
        claims.objects[uid(1)] = claim_object(1, [share(NUMA1, 4)])  # allocated anew
        await agent.transactions.prepare(ref(1))
        assert len(set(looks)) == len(looks) == 2
        assert len(agent.node.claims[uid(1)].cpus) == 4


async def test_a_lingering_claim_that_is_released_while_it_is_read_again_is_not_judged_by_an_old_look(tmp_path):
    class Ending(Claims):
        async def read(self, ref, seconds):
            if pinned.id in ending:
                agent.node.containers.removed(pinned.id)
            return await super().read(ref, seconds)

    claims = Ending(claim_object(1, [share(NUMA1, 2)]))
    pinned = container("c", f"claim-{uid(1)}")
    agent = Agent(tmp_path, claims)
    looks: list[str] = []
    ending: set[str] = set()

    async def look(request):
        looks.append(request.digest)

    agent.transactions = _looking(agent, claims, look)
    async with agent.alive():
        await agent.transactions.prepare(ref(1))
        agent.node.containers.create(pinned)
        agent.node.containers.created("c")
        await agent.transactions.unprepare(ref(1))
        ending.add("c")
        await agent.transactions.prepare(ref(1))
    assert len(looks) == 2


def _looking(agent, claims, look):
    return ClaimTransactions(
        agent.node,
        agent.node.claims,
        claims,
        agent.state_file,
        agent.cdi,
        wait_until_settled=agent.push,
        observer=Silent(),
        look_at_pods=agent.lingering.look,
        before_grant=look,
        runtime_seconds=0.0,
    )
