"""Our .proto files have the kubelet's field numbers: tables and bytes are written from its API, not with our code."""

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from dracpu_agent.kubelet.proto import kubelet_dra_pb2 as dra
from dracpu_agent.kubelet.proto import kubelet_health_pb2 as health
from dracpu_agent.kubelet.proto import kubelet_podresources_pb2 as pod_resources
from dracpu_agent.kubelet.proto import kubelet_registration_pb2 as registration

STRING, BOOL, INT64, ENUM, MESSAGE = (
    FieldDescriptor.TYPE_STRING,
    FieldDescriptor.TYPE_BOOL,
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_ENUM,
    FieldDescriptor.TYPE_MESSAGE,
)
MANY, ONE = True, False

FIELDS: dict[type[Message], dict[str, tuple[int, int, bool]]] = {
    registration.InfoRequest: {},
    registration.PluginInfo: {
        "type": (1, STRING, ONE),
        "name": (2, STRING, ONE),
        "endpoint": (3, STRING, ONE),
        "supported_versions": (4, STRING, MANY),
    },
    registration.RegistrationStatus: {"plugin_registered": (1, BOOL, ONE), "error": (2, STRING, ONE)},
    registration.RegistrationStatusResponse: {},
    dra.Claim: {"namespace": (1, STRING, ONE), "uid": (2, STRING, ONE), "name": (3, STRING, ONE)},
    dra.NodePrepareResourcesRequest: {"claims": (1, MESSAGE, MANY)},
    dra.NodePrepareResourcesResponse: {"claims": (1, MESSAGE, MANY)},
    dra.NodePrepareResourcesResponse.ClaimsEntry: {"key": (1, STRING, ONE), "value": (2, MESSAGE, ONE)},
    dra.NodePrepareResourceResponse: {"devices": (1, MESSAGE, MANY), "error": (2, STRING, ONE)},
    dra.Device: {
        "request_names": (1, STRING, MANY),
        "pool_name": (2, STRING, ONE),
        "device_name": (3, STRING, ONE),
        "cdi_device_ids": (4, STRING, MANY),
        "share_id": (5, STRING, ONE),
    },
    dra.NodeUnprepareResourcesRequest: {"claims": (1, MESSAGE, MANY)},
    dra.NodeUnprepareResourcesResponse: {"claims": (1, MESSAGE, MANY)},
    dra.NodeUnprepareResourcesResponse.ClaimsEntry: {"key": (1, STRING, ONE), "value": (2, MESSAGE, ONE)},
    dra.NodeUnprepareResourceResponse: {"error": (1, STRING, ONE)},
    health.NodeWatchResourcesRequest: {},
    health.NodeWatchResourcesResponse: {"devices": (1, MESSAGE, MANY)},
    health.DeviceIdentifier: {"pool_name": (1, STRING, ONE), "device_name": (2, STRING, ONE)},
    health.DeviceHealth: {
        "device": (1, MESSAGE, ONE),
        "health": (2, ENUM, ONE),
        "last_updated_time": (3, INT64, ONE),
        "health_check_timeout_seconds": (4, INT64, ONE),
        "message": (5, STRING, ONE),
    },
    pod_resources.AllocatableResourcesRequest: {},
    pod_resources.AllocatableResourcesResponse: {"cpu_ids": (2, INT64, MANY), "memory": (3, MESSAGE, MANY)},
    pod_resources.ContainerMemory: {},  # only its presence counts
}


@pytest.mark.parametrize("message", FIELDS, ids=lambda message: message.__name__)
def test_fields_have_the_kubelets_numbers_and_types(message: type[Message]) -> None:
    ours = {field.name: (field.number, field.type, field.is_repeated) for field in message.DESCRIPTOR.fields}
    assert ours == FIELDS[message]


def test_every_message_is_checked() -> None:
    ours = {
        message.full_name
        for module in (dra, health, pod_resources, registration)
        for message in module.DESCRIPTOR.message_types_by_name.values()
    }
    listed = {message.DESCRIPTOR.full_name for message in FIELDS if message.DESCRIPTOR.containing_type is None}
    assert ours == listed


def test_health_has_the_kubelets_values() -> None:
    assert (health.UNKNOWN, health.HEALTHY, health.UNHEALTHY) == (0, 1, 2)


def test_a_request_of_the_kubelet_is_decoded() -> None:
    request = dra.NodePrepareResourcesRequest.FromString(b"\x0a\x0d\x0a\x02ns\x12\x03uid\x1a\x02cl")
    (claim,) = request.claims
    assert (claim.namespace, claim.uid, claim.name) == ("ns", "uid", "cl")


def test_an_answer_to_the_kubelet_is_encoded() -> None:
    device = dra.Device(request_names=["r"], pool_name="p", device_name="d", cdi_device_ids=["k/c=x"], share_id="s")
    answer = dra.NodePrepareResourcesResponse(claims={"uid": dra.NodePrepareResourceResponse(devices=[device])})
    device_bytes = b"\x0a\x01r\x12\x01p\x1a\x01d\x22\x05k/c=x\x2a\x01s"
    prepared = b"\x0a" + bytes([len(device_bytes)]) + device_bytes
    entry = b"\x0a\x03uid\x12" + bytes([len(prepared)]) + prepared
    assert answer.SerializeToString() == b"\x0a" + bytes([len(entry)]) + entry


def test_the_cpus_that_the_kubelet_may_assign_are_decoded() -> None:
    memory = b"\x1a\x0a\x0a\x06memory\x10\x05"  # a field that the agent does not read
    assert list(pod_resources.AllocatableResourcesResponse.FromString(b"\x12\x02\x02\x03" + memory).cpu_ids) == [2, 3]


def test_an_absent_share_id_differs_from_an_empty_share_id() -> None:
    assert dra.Device(pool_name="p", share_id=None).SerializeToString() == b"\x12\x01p"
    assert dra.Device(pool_name="p", share_id="").SerializeToString() == b"\x12\x01p\x2a\x00"
