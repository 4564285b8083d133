"""CpuDriverConfig and CpuNode as pydantic models: the source of the CRDs, and what the operator validates with.

The agent imports nothing from here: pydantic would cost each node some 20 MiB.
"""
