"""Claims whose devices a node does not publish any more: the node drains until they have ended."""

from collections.abc import Mapping

from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.claims.grant import ClaimRef
from dracpu_api.device_names import belongs_to
from dracpu_api.names import DRIVER
from dracpu_api.settings import CpuNodeSpec


def draining(spec: CpuNodeSpec, held: Mapping[str, CpuClaim]) -> tuple[ClaimRef, ...]:
    """Claims that have CPUs through devices of a former representation, prepared or listed as outstanding."""

    def is_former(device: str) -> bool:
        return bool(device) and not belongs_to(device, spec.settings)  # a frozen claim may lack its devices' names

    keeping = [claim.ref for claim in held.values() if any(is_former(grant.device) for grant in claim.grants)]
    waiting = [
        ClaimRef(claim.namespace, claim.name, claim.uid)
        for claim in spec.outstanding
        if claim.uid not in held
        and any(is_former(device.name) for device in claim.devices if device.driver == DRIVER and device.cpus)
    ]
    return (*keeping, *waiting)
