"""The agent asks the kubelet over a real socket whether its CPU manager and its memory manager are static."""

import socket

import pytest
from fake_kubelet import kubelet_root
from fake_pod_resources import pod_resources

from dracpu_agent.kubelet.pod_resources import PodResources, PodResourcesError


async def test_a_kubelet_assigns_cpus_only_if_its_cpu_manager_is_static() -> None:
    with kubelet_root() as root:
        kubelet = PodResources(root)
        async with pod_resources(root, cpus=[]):
            assert await kubelet.assigns_cpus() is False
        async with pod_resources(root, cpus=[0, 1, 2, 3]):
            assert await kubelet.assigns_cpus() is True


async def test_a_kubelet_assigns_memory_only_if_its_memory_manager_is_static() -> None:
    with kubelet_root() as root:
        kubelet = PodResources(root)
        async with pod_resources(root, cpus=[0, 1]):
            assert await kubelet.assigns_memory() is False
        async with pod_resources(root, memory=True):
            assert await kubelet.assigns_memory() is True
            assert await kubelet.assigns_cpus() is False


async def test_without_a_socket_nothing_is_known() -> None:
    with kubelet_root() as root:
        assert await PodResources(root).assigns_cpus() is None
        assert await PodResources(root).assigns_memory() is None


async def test_a_kubelet_that_has_ended_is_an_error_that_names_the_socket() -> None:
    with kubelet_root() as root:
        (root / "pod-resources").mkdir()
        path = root / "pod-resources" / "kubelet.sock"
        with socket.socket(socket.AF_UNIX) as left_behind:
            left_behind.bind(str(path))
        with pytest.raises(PodResourcesError, match=f"the kubelet does not answer on {path}"):
            await PodResources(root).assigns_cpus()
