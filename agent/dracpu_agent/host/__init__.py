"""Reads the machine: sysfs, hot-plug and the state files of the kubelet."""
