"""Restores the state of the former agent: from the checkpoint and, where that is damaged, from the CDI files."""

from collections.abc import Iterable, Mapping

import structlog

from dracpu_agent.cdi.files import CdiDirectory, CdiFileError
from dracpu_agent.checkpoint.statefile import Loaded
from dracpu_agent.claims.checkpoint import Checkpoint
from dracpu_agent.claims.ledger import HeldClaim, LedgerError
from dracpu_agent.claims.record import encode_claim, freeze
from dracpu_agent.errors import SettingsRefusedError
from dracpu_agent.node import NodeState

log = structlog.get_logger("recovery")


def recover(node: NodeState, loaded: Loaded, cdi: CdiDirectory) -> str:
    """Fills the node's ledger; returns what is wrong with the checkpoint, empty when it is sound.

    Every claim that was prepared has a CDI file with its record, and these files are never older than the previous copy
    of a damaged checkpoint. So the files come first, and the copy adds the claims that they lack (all of them after a
    reboot, which clears the files).

    Frozen claims come last, because the CPUs that their records name may be those of other claims, too. The file of a
    frozen claim stays; another file whose claim is not in a sound checkpoint is what an interrupted call has left.
    """
    damage, checkpoint = loaded.damage, loaded.checkpoint
    if checkpoint is not None and checkpoint.node != node.node_name:
        damage, checkpoint = f"it is the checkpoint of node {checkpoint.node}", None
    files = {claim.ref.uid: claim for claim in cdi.read_all()}
    if damage or checkpoint is None:
        _adopt(node, (claim for claim in files.values() if claim.frozen is None), "its CDI file")
    if checkpoint is not None:
        refused = _adopt(node, (claim for claim in checkpoint.claims if claim.frozen is None), "the checkpoint")
        frozen = [claim for claim in checkpoint.claims if claim.frozen is not None]
        if not damage:  # a newer agent wrote these claims so; an older copy may contain claims that have ended
            frozen += [freeze(claim.ref.uid, encode_claim(claim), reason) for claim, reason in refused]
        _adopt(node, (_with_file(claim, files) for claim in frozen), "the checkpoint")
    _adopt(node, (claim for claim in files.values() if claim.frozen is not None), "its CDI file")
    if checkpoint is not None:
        _resume(node, checkpoint)
    _delete_leftovers(node, cdi)
    if damage:
        log.error("checkpoint damaged, rebuilt from the CDI files and its previous copy", damage=damage)
    log.info("state recovered", claims=len(node.claims), cpus=str(node.division.exclusive))
    return damage


def _with_file(claim: HeldClaim, files: Mapping[str, HeldClaim]) -> HeldClaim:
    """The frozen claim with the devices in its CDI file, by which its containers prove that they belong to it."""
    assert claim.frozen is not None
    file = files.get(claim.ref.uid)
    if file is None:
        return claim
    return freeze(claim.ref.uid, claim.frozen.record, claim.frozen.reason, tuple(file.cdi_devices()), file.cpus)


def _adopt(node: NodeState, claims: Iterable[HeldClaim], source: str) -> list[tuple[HeldClaim, str]]:
    """Books the claims that are not booked yet; returns those whose CPUs another claim holds, and the reason."""
    refused = []
    for claim in claims:
        if claim.ref.uid in node.claims:
            continue
        try:
            node.adopt(claim)
        except LedgerError as error:
            log.error("claim not recovered", uid=claim.ref.uid, source=source, error=str(error))
            refused.append((claim, str(error)))
        if claim.frozen is not None:
            reason, cpus = claim.frozen.reason, str(claim.cpus)
            log.error("claim frozen: its record cannot be read", claim=str(claim.ref), cpus=cpus, reason=reason)
    return refused


def _resume(node: NodeState, checkpoint: Checkpoint) -> None:
    if checkpoint.spec is None and checkpoint.kept.spec is not None:
        log.warning("settings of the checkpoint cannot be read; the node waits for those of the API server")
    try:
        node.resume(checkpoint)
    except SettingsRefusedError as error:  # the machine has changed; settings from the API server follow
        log.warning("settings of the checkpoint refused", error=str(error))


def _delete_leftovers(node: NodeState, cdi: CdiDirectory) -> None:
    """Deletes the files of claims whose Prepare or Unprepare was interrupted."""
    try:
        cdi.delete_unfinished()
        for uid in cdi.uids() - set(node.claims):
            cdi.delete(uid)
    except CdiFileError as error:  # no container can use the files: the ledger has no such claims
        log.warning("CDI files of unknown claims not deleted", error=str(error))
