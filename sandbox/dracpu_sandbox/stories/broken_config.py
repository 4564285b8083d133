"""A config that no node can apply stops at the first node, changes no devices, and continues after a correction."""

from dracpu_sandbox.resources import CONFIGS, CPU_NODES, EVENTS, conditions_of
from dracpu_sandbox.stories.manifests import single_devices
from dracpu_sandbox.stories.story import CONFIG, Story

MACHINES = ("lab", "lab")  # 8 CPUs in two NUMA nodes; the lowest core is not offered

ONE_BY_ONE = {"maxUnavailable": 1, "settleSeconds": 1}


async def play(story: Story) -> None:
    broken, spared = story.nodes
    await story.pod("plain", node=broken)
    await story.until_running("plain")
    everything = story.cpus("plain")
    await story.pod("steady", cpus=2, node=broken)
    await story.until_running("steady")
    held, former = story.cpus("steady"), [await story.client.get(CPU_NODES, node) for node in story.nodes]
    offered = await story.devices(broken)

    await story.edit(mode="individual", reservedCPUs="0-1,99", rollout=ONE_BY_ONE)
    await story.until_config_reports("Progressing False Stopped: 0 of 2 nodes applied these settings; 1 node failed")
    await story.until_config_reports("Degraded True NodesFailed: 1 node failed")
    await story.until_config_reports(f"{broken}: reservedCPUs names CPU 99, which the node does not have")
    await story.until("the config counts the nodes", lambda: _counts(story, applied=0, progressing=1, failed=1))
    await story.until("an Event reports the failed node", lambda: _has_event(story, "NodesFailed"))
    await story.until_phase("Failed", broken)
    await story.until_phase("Ready", spared)

    node = await story.client.get(CPU_NODES, broken)
    applied = conditions_of(node)["ConfigApplied"]
    story.expects(f"{broken} reports that it has not applied the config", applied["status"] == "False", applied)
    same = node["status"]["appliedRevision"] == former[0]["status"]["appliedRevision"]
    story.expects(f"{broken} keeps its last good settings", same and await story.devices(broken) == offered)
    story.expects_cpus("steady", held)
    await story.pod("newcomer", cpus=2, node=broken)
    await story.until_running("newcomer")
    await story.until_exclusive()
    await story.delete("newcomer")
    untouched = (await story.client.get(CPU_NODES, spared))["spec"] == former[1]["spec"]
    story.expects(f"{spared} has received no new settings", untouched)

    await story.edit(mode="individual", reservedCPUs="0-1", rollout=ONE_BY_ONE)
    await story.until_config_reports("Progressing False Complete")
    await story.until_config_reports("Degraded False NoFailures")
    await story.until("the config counts the nodes", lambda: _counts(story, applied=2, progressing=0, failed=0))
    await story.until_devices(spared, single_devices(everything))
    await story.until_devices(broken, single_devices(everything - held))
    story.expects_cpus("steady", held)


async def _counts(story: Story, **expected: int) -> bool:
    config = await story.client.get(CONFIGS, CONFIG)
    counts = {"selected": len(story.nodes), "withoutAgent": 0, **expected}
    return bool(config["status"]["nodes"] == counts)


async def _has_event(story: Story, reason: str) -> bool:
    events = await story.client.list(EVENTS, "default")
    return any(event["reason"] == reason and event["regarding"]["name"] == CONFIG for event in events)
