"""Following claims on a real API server, whose watches send bookmarks when they do."""

import json
from pathlib import Path

import pytest
from fleet.claims import Claims, ClaimsLog
from fleet.plane import MISSING, OPERATOR, assets, control_plane

from dracpu_operator.api import access
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.intervals import Intervals
from dracpu_operator.known.claimwatch import ClaimWatch

pytestmark = [pytest.mark.skipif(assets() is None, reason=MISSING), pytest.mark.timeout(120)]


async def test_changes_see_every_claim_that_was_allocated_before_and_claims_are_listed_once(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    async with control_plane(tmp_path) as plane:
        claims = Claims(plane.admin, ["n1", "n2"], 20)
        await claims.create(claims.names[:10])
        kubeconfig.write_text(json.dumps(await plane.kubeconfig(OPERATOR)))
        log = ClaimsLog(plane.audit.file)
        async with (
            Cluster(await access.load(kubeconfig)) as cluster,
            ClaimWatch(cluster, Intervals(), lambda nodes: None, lambda: None) as watch,
        ):
            await watch.refresh()
            assert len(watch.claims) == 10
            await watch.refresh()  # though nothing has changed, as for the second batch of a rollout
            for name in claims.names[10:]:
                await claims.create([name])
                await watch.refresh()
                assert name in {claim.name for node in ("n1", "n2") for claim in watch.claims.of(node)}
            await claims.deallocate(claims.names[0])
            await watch.refresh()
            assert len(watch.claims) == 19
        lists, probes, _ = log.counts()
        assert (lists, probes) == (1, 12)
