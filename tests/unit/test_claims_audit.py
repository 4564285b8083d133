import asyncio

import pytest
from nodes import NODE, claim_object, container, node, request, share, uid, whole

from dracpu_agent.claims.audit import Audit, Finding, look
from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.claims.record import freeze
from dracpu_agent.errors import ClaimError
from dracpu_agent.work.auditing import Auditor

NUMA1 = "cpudevnuma001"


@pytest.mark.parametrize(
    ("claim", "finding"),
    [
        (claim_object(1, [whole(2)]), Finding.IN_ORDER),
        (None, Finding.GONE),
        (claim_object(2, [whole(2)]), Finding.REPLACED),
        (claim_object(1, [whole(2) | {"pool": "other"}]), Finding.ELSEWHERE),
        ({"metadata": {"uid": uid(1)}, "status": {}}, Finding.ELSEWHERE),
    ],
)
def test_the_finding_follows_from_the_claim_in_the_api_server(claim, finding):
    assert look("dra.cpu", uid(1), claim, NODE) is finding


def test_a_claim_is_released_on_the_second_finding_in_a_row_and_never_while_it_is_used():
    audit = Audit()
    assert audit.judge({"a": Finding.GONE}, in_use=[]) == []
    assert audit.judge({"a": Finding.IN_ORDER}, in_use=[]) == []
    assert audit.judge({"a": Finding.GONE}, in_use=[]) == []
    assert audit.judge({"a": Finding.GONE}, in_use=["a"]) == []
    assert audit.judge({"a": Finding.GONE}, in_use=[]) == []
    assert audit.judge({"a": Finding.REPLACED}, in_use=[]) == ["a"]


async def test_the_auditor_releases_only_claims_that_the_second_finding_confirms():
    state = node()
    for number in (1, 2, 3):
        state.claims.grant(request(number, share(NUMA1, 1)))
    state.containers.create(container("c", f"claim-{uid(3)}"))
    there = {uid(1): claim_object(1, [share(NUMA1, 1)])}
    released = []

    async def read(ref, _seconds):
        await asyncio.sleep(0)
        return there.get(ref.uid)

    async def release_if_gone(ref):
        await asyncio.sleep(0)
        state.claims.release(ref.uid)
        return Finding.GONE

    auditor = Auditor(
        state, state.claims, read, release_if_gone, lambda claim, reason: released.append((claim.ref.uid, reason))
    )
    await auditor.round()
    assert set(state.claims) == {uid(1), uid(2), uid(3)}
    await auditor.round()
    assert set(state.claims) == {uid(1), uid(3)}
    assert released == [(uid(2), "the claim does not exist any more")]


async def test_a_claim_that_cannot_be_released_does_not_prevent_the_release_of_others():
    state = node()
    for number in (1, 2):
        state.claims.grant(request(number, share(NUMA1, 1)))
    released = []

    async def read(_ref, _seconds):
        await asyncio.sleep(0)

    async def release_if_gone(ref):
        await asyncio.sleep(0)
        if ref.uid == uid(1):
            raise ClaimError("cannot delete the CDI file")
        return Finding.GONE

    auditor = Auditor(state, state.claims, read, release_if_gone, lambda claim, _reason: released.append(claim.ref.uid))
    await auditor.round()
    await auditor.round()
    assert released == [uid(2)]


async def test_a_frozen_claim_is_not_audited():
    state = node()
    state.adopt(
        freeze(CpuClaim, uid(1), {"namespace": "default", "name": "claim-1", "driver": "future"}, "it has no grants")
    )

    async def read(_ref, _seconds):
        await asyncio.sleep(0)

    async def release_if_gone(_ref):
        raise AssertionError("this agent cannot judge the claim")

    auditor = Auditor(state, state.claims, read, release_if_gone, lambda *_: None)
    await auditor.round()
    await auditor.round()
    assert set(state.claims) == {uid(1)}


async def test_without_the_runtime_nothing_is_audited():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 1)))
    state.containers.disconnected()

    async def read(_ref, _seconds):
        raise AssertionError("no claim is read now")

    async def release_if_gone(_ref):
        raise AssertionError("nothing is released now")

    auditor = Auditor(state, state.claims, read, release_if_gone, lambda *_: None)
    await auditor.round()
    await auditor.round()
    assert set(state.claims) == {uid(1)}
