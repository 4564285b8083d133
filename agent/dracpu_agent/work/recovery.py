"""Restores the state of the former agent: from the checkpoint and, where that is damaged, from the CDI files."""

from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from dracpu_agent.cdi.files import CdiDirectory, CdiFileError
from dracpu_agent.checkpoint.statefile import Loaded
from dracpu_agent.claims.checkpoint import Checkpoint
from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.claims.ledger import LedgerError
from dracpu_agent.claims.record import encode_claim, freeze
from dracpu_agent.errors import SettingsRefusedError
from dracpu_agent.node import NodeState
from dracpu_agent.placement.proof import ClaimKey

log = structlog.get_logger("recovery")


def recover(node: NodeState, loaded: Loaded, *directories: CdiDirectory[Any]) -> str:
    """Fills the node's ledgers, with a directory of CDI files for each driver; returns what is wrong with the
    checkpoint, empty when it is sound.

    Every claim that was prepared has a CDI file with its record, and these files are never older than the previous copy
    of a damaged checkpoint. So the files come first, and the copy adds the claims that they lack (all of them after a
    reboot, which clears the files).

    Frozen claims come last, because the CPUs that their records name may be those of other claims, too. The file of a
    frozen claim stays; another file whose claim is not in a sound checkpoint is what an interrupted call has left.
    """
    damage, checkpoint = loaded.damage, loaded.checkpoint
    if checkpoint is not None and checkpoint.node != node.node_name:
        damage, checkpoint = f"it is the checkpoint of node {checkpoint.node}", None
    files = {claim.key: claim for directory in directories for claim in directory.read_all()}
    if damage or checkpoint is None:
        _adopt(node, (claim for claim in files.values() if claim.frozen is None), "its CDI file")
    if checkpoint is not None:
        refused = _adopt(node, (claim for claim in checkpoint.claims if claim.frozen is None), "the checkpoint")
        frozen = [claim for claim in checkpoint.claims if claim.frozen is not None]
        if not damage:  # a newer agent wrote these claims so; an older copy may contain claims that have ended
            frozen += [freeze(type(claim), claim.ref.uid, encode_claim(claim), reason) for claim, reason in refused]
        _adopt(node, (_with_file(claim, files) for claim in frozen), "the checkpoint")
    _adopt(node, (claim for claim in files.values() if claim.frozen is not None), "its CDI file")
    if checkpoint is not None:
        _resume(node, checkpoint)
    for directory in directories:
        _delete_leftovers(node, directory)
    if damage:
        log.error("checkpoint damaged, rebuilt from the CDI files and its previous copy", damage=damage)
    log.info("state recovered", claims=len(list(node.all_claims())), cpus=str(node.division.exclusive))
    return damage


def _with_file(claim: HeldClaim[Any], files: Mapping[ClaimKey, HeldClaim[Any]]) -> HeldClaim[Any]:
    """The frozen claim with the devices in its CDI file, by which its containers prove that they belong to it."""
    assert claim.frozen is not None
    file = files.get(claim.key)
    if file is None:
        return claim
    devices = tuple(file.cdi_devices())
    return freeze(type(claim), claim.ref.uid, claim.frozen.record, claim.frozen.reason, devices, file.grants)


def _adopt(node: NodeState, claims: Iterable[HeldClaim[Any]], source: str) -> list[tuple[HeldClaim[Any], str]]:
    """Books the claims that are not booked yet; returns those that cannot be, and the reason: another claim holds what
    they hold."""
    refused = []
    for claim in claims:
        if claim.ref.uid in node.holdings[claim.key.driver]:
            continue
        try:
            node.adopt(claim)
        except LedgerError as error:
            log.error("claim not recovered", uid=claim.ref.uid, source=source, error=str(error))
            refused.append((claim, str(error)))
        if claim.frozen is not None:
            reason, holds = claim.frozen.reason, claim.content
            log.error("claim frozen: its record cannot be read", claim=str(claim.ref), holds=holds, reason=reason)
    return refused


def _resume(node: NodeState, checkpoint: Checkpoint) -> None:
    if checkpoint.spec is None and checkpoint.kept.spec is not None:
        log.warning("settings of the checkpoint cannot be read; the node waits for those of the API server")
    try:
        node.resume(checkpoint)
    except SettingsRefusedError as error:  # the machine has changed; settings from the API server follow
        log.warning("settings of the checkpoint refused", error=str(error))


def _delete_leftovers(node: NodeState, cdi: CdiDirectory[Any]) -> None:
    """Deletes the files of claims whose Prepare or Unprepare was interrupted."""
    try:
        cdi.delete_unfinished()
        for uid in cdi.uids() - set(node.holdings[cdi.driver]):
            cdi.delete(uid)
    except CdiFileError as error:  # no container can use the files: the ledger has no such claims
        log.warning("CDI files of unknown claims not deleted", error=str(error))
