"""Restores the state of the former agent: from the checkpoint and, where that is damaged, from the CDI files."""

from collections.abc import Iterable

import structlog

from dracpu_agent.cdi.files import CdiDirectory, CdiFileError
from dracpu_agent.checkpoint.statefile import Loaded
from dracpu_agent.claims.ledger import HeldClaim, LedgerError
from dracpu_agent.errors import SettingsRefusedError
from dracpu_agent.node import NodeState

log = structlog.get_logger("recovery")


def recover(node: NodeState, loaded: Loaded, cdi: CdiDirectory) -> str:
    """Fills the node's ledger; returns what is wrong with the checkpoint, empty when it is sound.

    Every claim that was prepared has a CDI file with its record, and these files are never older than the previous copy
    of a damaged checkpoint. So the files come first, and the copy adds the claims that they lack (all of them after a
    reboot, which clears the files).
    """
    damage, checkpoint = loaded.damage, loaded.checkpoint
    if checkpoint is not None and checkpoint.node != node.node_name:
        damage, checkpoint = f"it is the checkpoint of node {checkpoint.node}", None
    if damage or checkpoint is None:
        _adopt(node, cdi.read_all(), "its CDI file")
    if checkpoint is not None:
        _adopt(node, checkpoint.claims, "the checkpoint")
        try:
            node.resume(checkpoint)
        except SettingsRefusedError as error:  # the machine has changed; settings from the API server follow
            log.warning("settings of the checkpoint refused", error=str(error))
    _delete_leftovers(node, cdi)
    if damage:
        log.error("checkpoint damaged, rebuilt from the CDI files and its previous copy", damage=damage)
    log.info("state recovered", claims=len(node.claims), cpus=str(node.division.exclusive))
    return damage


def _adopt(node: NodeState, claims: Iterable[HeldClaim], source: str) -> None:
    for claim in claims:
        if claim.ref.uid in node.claims:
            continue
        try:
            node.adopt(claim)
        except LedgerError as error:
            log.error("claim not recovered", uid=claim.ref.uid, source=source, error=str(error))


def _delete_leftovers(node: NodeState, cdi: CdiDirectory) -> None:
    """Deletes the files of claims whose Prepare or Unprepare was interrupted."""
    try:
        cdi.delete_unfinished()
        for uid in cdi.uids() - set(node.claims):
            cdi.delete(uid)
    except CdiFileError as error:  # no container can use the files: the ledger has no such claims
        log.warning("CDI files of unknown claims not deleted", error=str(error))
