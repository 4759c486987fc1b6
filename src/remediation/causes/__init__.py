"""Causes: one failure class a file, asked in the order of the chain from cause to effect.

The first finding is the root cause: a lost node comes before what it took down, a pod that was refused before one that crashed, a
configuration that is missing before a probe that fails. No cause imports another; what they share are views over the evidence.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from suture.remediation.causes import (
    anti_affinity,
    autoscaler,
    bad_arguments,
    bad_command,
    config_value,
    dependency,
    disruption_budget,
    file_permission,
    host_not_found,
    host_port,
    image_architecture,
    image_content,
    image_name,
    image_not_found,
    image_pull_denied,
    image_rate_limited,
    init_container,
    insufficient_resources,
    limit_range,
    memory_limit,
    memory_unit,
    missing_config_map,
    missing_env,
    missing_secret,
    no_fault,
    node_lost,
    node_selector,
    non_root,
    pod_security,
    port_in_use,
    probe_early,
    probe_path,
    probe_port,
    probe_timeout,
    quota,
    read_only_filesystem,
    service_account,
    slow_rollout,
    untolerated_taint,
    volume_claim,
    volume_in_use,
    webhook,
)
from suture.remediation.incident import Finding
from suture.remediation.sightings import Scene


class Cause(NamedTuple):
    """One failure class: the codes that it may say, and what it finds. Pure; says nothing where it is not sure."""

    codes: tuple[str, ...]
    findings: Callable[[Scene], Iterator[Finding]]


_MODULES = (
    node_lost,
    # refused before there is a pod
    webhook, pod_security, service_account, limit_range, quota,
    # a pod without a node
    volume_claim, volume_in_use, host_port, anti_affinity, insufficient_resources, node_selector, untolerated_taint,
    # a container that cannot be made
    memory_unit, missing_config_map, missing_secret, non_root,
    # an image that cannot be had or run
    image_name, image_architecture, image_rate_limited, image_pull_denied, image_content, image_not_found, bad_command,
    # a program that ends by itself
    config_value, missing_env, bad_arguments, read_only_filesystem, file_permission, port_in_use, host_not_found, dependency, memory_limit,
    init_container,
    # a program that is taken for dead
    probe_port, probe_path, probe_timeout, probe_early,
    # nothing is broken, and something cannot go on
    disruption_budget, autoscaler, slow_rollout, no_fault,
)  # fmt: skip

CAUSES: tuple[Cause, ...] = tuple(Cause(module.CODES, module.findings) for module in _MODULES)
"""All causes, the first in the chain first."""

GENERAL = frozenset({"InitContainerFailed"})
"""Said where nothing more precise is said of the same container."""

QUIET = frozenset({"SlowRollout", "NoFault"})
"""Verdicts that nothing is broken: they hold only where no cause is found on the same workload."""
