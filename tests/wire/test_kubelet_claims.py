"""The kubelet's calls for claims, up to the service that does the work: order, cancellation, deadlines, errors."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

import grpc
import pytest
from fake_kubelet import FakeKubelet, kubelet_root
from structlog.testing import capture_logs

from dracpu_agent.claims.grant import ClaimRef, PreparedDevice
from dracpu_agent.errors import ClaimError
from dracpu_agent.kubelet.dra import DraPlugin
from dracpu_agent.kubelet.health import DeviceHealth
from dracpu_agent.kubelet.operations import ClaimOperations, Outcome, Verb
from dracpu_agent.kubelet.plugin import KubeletPlugin
from dracpu_agent.kubelet.proto.kubelet_dra_pb2 import Claim
from dracpu_agent.kubelet.proto.kubelet_registration_pb2 import PluginInfo
from dracpu_agent.kubelet.sockets import SocketServer
from dracpu_sandbox.node.plugins import DRA_SERVICES, KubeletError, RegisteredPlugin

DRIVER = "dra.cpu"
ONE, TWO = ClaimRef("default", "one", "uid-1"), ClaimRef("default", "two", "uid-2")


class Claims:
    """A claim service that a test can block; it records the finished work in order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.started = asyncio.Queue[str]()
        self.open = asyncio.Event()
        self.open.set()
        self.errors: dict[str, Exception] = {}
        self.working: set[str] = set()
        self.together = 0  # the largest number of claims that were processed at the same time

    async def prepare(self, claim: ClaimRef) -> Sequence[PreparedDevice]:
        await self._work("prepare", claim)
        return (device_of(claim),)

    async def unprepare(self, claim: ClaimRef) -> None:
        await self._work("unprepare", claim)

    async def _work(self, verb: str, claim: ClaimRef) -> None:
        assert claim.uid not in self.working, "two transactions for one claim at the same time"
        self.working.add(claim.uid)
        self.together = max(self.together, len(self.working))
        self.started.put_nowait(f"{verb} {claim.name}")
        try:
            await self.open.wait()
            if claim.uid in self.errors:
                raise self.errors[claim.uid]
            self.done.append(f"{verb} {claim.name}")
        finally:
            self.working.discard(claim.uid)


class AllHealthy:
    def snapshot(self) -> Sequence[DeviceHealth]:
        return ()


def device_of(claim: ClaimRef) -> PreparedDevice:
    return PreparedDevice(
        ("main",), "vm1", "cpudevnuma000", f"share-{claim.uid}", (f"dra.k8s.io/cpu=claim-{claim.uid}",)
    )


@asynccontextmanager
async def registered(
    claims: Claims, knows: Sequence[str] = DRA_SERVICES
) -> AsyncIterator[tuple[KubeletPlugin, RegisteredPlugin]]:
    with kubelet_root() as root:
        plugin = KubeletPlugin(DRIVER, root, claims, AllHealthy(), lambda _: None)
        await plugin.start()
        try:
            async with FakeKubelet(root, knows) as kubelet:
                yield plugin, await kubelet.register(DRIVER)
        finally:
            claims.open.set()
            await plugin.stop()


async def test_a_claim_is_prepared_and_unprepared() -> None:
    claims = Claims()
    async with registered(claims) as (_, kubelet):
        assert kubelet.dra_service == "v1.DRAPlugin"
        assert await kubelet.prepare_one(ONE) == (device_of(ONE),)
        await kubelet.unprepare_one(ONE)
    assert claims.done == ["prepare one", "unprepare one"]


async def test_share_ids_are_left_out_for_an_old_kubelet() -> None:
    async with registered(Claims(), ["v1beta1.DRAPlugin"]) as (_, kubelet):
        assert kubelet.dra_service == "v1beta1.DRAPlugin"
        assert await kubelet.prepare_one(ONE) == (dataclasses.replace(device_of(ONE), share_id=None),)
        await kubelet.unprepare_one(ONE)


async def test_prepared_devices_name_requests_without_their_sub_requests() -> None:
    class SubRequests(Claims):
        async def prepare(self, claim: ClaimRef) -> Sequence[PreparedDevice]:
            return (PreparedDevice(("main/big", "main/small", "extra"), "vm1", "cpudev001", None, ()),)

    async with registered(SubRequests()) as (_, kubelet):
        (device,) = await kubelet.prepare_one(ONE)
    assert device.requests == ("main", "extra")
    assert device.share_id is None


async def test_the_claims_of_one_call_are_processed_concurrently() -> None:
    claims = Claims()
    claims.open.clear()
    async with registered(claims) as (_, kubelet):
        call = asyncio.create_task(kubelet.prepare(ONE, TWO))
        assert {await claims.started.get(), await claims.started.get()} == {"prepare one", "prepare two"}
        claims.open.set()
        assert set(await call) == {"uid-1", "uid-2"}
    assert claims.together == 2


async def test_a_call_without_claims_gets_an_empty_answer() -> None:
    async with registered(Claims()) as (_, kubelet):
        assert await kubelet.prepare() == {}
        assert await kubelet.unprepare() == {}


async def test_a_claim_that_is_named_twice_is_prepared_once() -> None:
    claims = Claims()
    async with registered(claims) as (_, kubelet):
        assert list(await kubelet.prepare(ONE, ONE)) == ["uid-1"]
    assert claims.done == ["prepare one"]


async def test_a_refused_claim_does_not_affect_the_others() -> None:
    claims = Claims()
    claims.errors["uid-1"] = ClaimError("device cpudev004 is reserved: free it in reservedCPUs")
    async with registered(claims) as (_, kubelet):
        with capture_logs() as logged:
            answers = await kubelet.prepare(ONE, TWO)
            errors = await kubelet.unprepare(ONE, TWO)
    assert answers["uid-1"].error == "device cpudev004 is reserved: free it in reservedCPUs"
    assert not answers["uid-1"].devices
    assert answers["uid-2"].error == ""
    assert answers["uid-2"].devices[0].device_name == "cpudevnuma000"
    assert errors == {"uid-1": "device cpudev004 is reserved: free it in reservedCPUs", "uid-2": ""}
    assert [(entry["event"], entry["uid"]) for entry in logged] == [("claim refused", "uid-1")] * 2


@pytest.mark.parametrize("error", [ClaimError(), ClaimError("")])
async def test_an_error_without_a_message_is_still_an_error(error: ClaimError) -> None:
    claims = Claims()
    claims.errors["uid-1"] = error
    async with registered(claims) as (_, kubelet):
        with pytest.raises(KubeletError, match="cannot prepare claim default/one: ClaimError"):
            await kubelet.prepare_one(ONE)


async def test_an_internal_error_is_logged_with_its_traceback_and_reported_without_details() -> None:
    claims = Claims()
    claims.errors["uid-1"] = RuntimeError("token abc")
    async with registered(claims) as (_, kubelet):
        with capture_logs() as logged, pytest.raises(KubeletError) as reported:
            await kubelet.prepare_one(ONE)
    assert str(reported.value) == "cannot prepare claim default/one: internal error, see the agent's log"
    (entry,) = logged
    assert (entry["event"], entry["claim"], entry["exc_info"]) == ("claim failed", "default/one", True)


class Watched(DraPlugin):
    """Shows when a call has been cancelled on the driver's side, which is later than on the kubelet's."""

    def __init__(self, operations: ClaimOperations) -> None:
        super().__init__(operations)
        self.cancelled = asyncio.Event()

    async def _outcomes(self, verb: Verb, claims: Iterable[Claim]) -> Mapping[str, Outcome]:
        try:
            return await super()._outcomes(verb, claims)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


async def test_a_call_that_the_kubelet_cancels_leaves_no_claim_half_done() -> None:
    claims = Claims()
    claims.open.clear()
    operations = ClaimOperations(claims)
    plugin = Watched(operations)
    async with serving(plugin) as kubelet:
        call = asyncio.create_task(kubelet.prepare(ONE))
        await claims.started.get()
        call.cancel()
        await plugin.cancelled.wait()
        claims.open.set()
        await operations.drain(10)
    assert call.cancelled()
    assert claims.done == ["prepare one"]


async def test_a_call_that_exceeds_the_kubelets_deadline_leaves_no_claim_half_done() -> None:
    claims = Claims()
    claims.open.clear()
    plugin = Watched(ClaimOperations(claims))
    async with serving(plugin) as kubelet:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await kubelet.prepare(ONE, seconds=0.2)
        assert failed.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await plugin.cancelled.wait()
        assert claims.working == {"uid-1"}
        claims.open.set()
        assert await kubelet.prepare_one(ONE) == (device_of(ONE),)
    assert claims.done[0] == "prepare one"


async def test_a_claim_that_takes_too_long_is_reported_and_the_others_are_answered() -> None:
    claims, slow = Claims(), Claims()
    slow.open.clear()

    class Mixed:
        async def prepare(self, claim: ClaimRef) -> Sequence[PreparedDevice]:
            return await (slow if claim == ONE else claims).prepare(claim)

        async def unprepare(self, claim: ClaimRef) -> None: ...

    operations = ClaimOperations(Mixed())
    async with serving(DraPlugin(operations, call_seconds=0.2)) as kubelet:
        answers = await kubelet.prepare(ONE, TWO)
        assert answers["uid-1"].error == (
            "cannot prepare claim default/one within 0.2 s; the agent continues, the kubelet retries"
        )
        assert answers["uid-2"].error == ""
        slow.open.set()
        await operations.drain(10)
    assert slow.done == ["prepare one"]


async def test_stopping_waits_for_claims_and_cancels_work_that_does_not_end() -> None:
    claims = Claims()
    claims.open.clear()
    operations = ClaimOperations(claims)
    async with serving(DraPlugin(operations)) as kubelet:
        call = asyncio.create_task(kubelet.prepare_one(ONE))
        await claims.started.get()
        with capture_logs() as logged:
            await operations.drain(0.1)
        with pytest.raises(KubeletError, match="the agent is stopping"):
            await call
    assert [entry["task"] for entry in logged] == ["prepare claim uid-1"]
    assert claims.done == []


@asynccontextmanager
async def serving(plugin: DraPlugin) -> AsyncIterator[RegisteredPlugin]:
    """Serves the data socket without a registration."""
    with kubelet_root() as root:
        server = SocketServer(root / "dra.sock", plugin.services())
        await server.start()
        async with grpc.aio.insecure_channel(f"unix:{root / 'dra.sock'}") as channel:
            yield RegisteredPlugin(PluginInfo(), channel, "v1.DRAPlugin", "")
        await server.stop(1)
