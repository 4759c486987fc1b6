"""The codes are a published, stable taxonomy: each belongs to one cause, and a finding says no other than its cause may."""

from pathlib import Path

import pytest

from suture.remediation.causes import CAUSES, GENERAL, QUIET
from suture.remediation.documents import read_recording
from suture.remediation.sightings import Scene

CASES = sorted((Path(__file__).parents[2] / "cases" / "scenarios").glob("case-*"))
PUBLISHED = {
    "ImageArchitecture",
    "BadArguments",
    "BadEntrypoint",
    "MemoryLimitTooLow",
    "MemoryUnit",
    "ImageNotFound",
    "ImagePullDenied",
    "ImagePullRateLimited",
    "InvalidImageName",
    "MissingSecret",
    "MissingSecretKey",
    "MissingConfigMap",
    "MissingConfigMapKey",
    "MissingEnv",
    "BadConfigValue",
    "NonRootViolation",
    "ProbeWrongPath",
    "ProbeWrongPort",
    "ProbeTooEarly",
    "ProbeTimeout",
    "InsufficientCpu",
    "InsufficientMemory",
    "NodeSelectorMismatch",
    "UntoleratedTaint",
    "AntiAffinityBlocksRollout",
    "HostPortConflict",
    "VolumeClaimUnbound",
    "ReadOnlyFilesystem",
    "FilePermission",
    "PortInUse",
    "InitContainerFailed",
    "QuotaNeedsLimits",
    "QuotaExceeded",
    "LimitRangeViolation",
    "PodSecurityViolation",
    "WebhookUnavailable",
    "MissingServiceAccount",
    "DisruptionBudgetBlocks",
    "AutoscalerMissingRequest",
    "MetricsUnavailable",
    "SlowRollout",
    "HostNotFound",
    "DependencyNotReady",
    "NodeLost",
    "VolumeInUse",
    "BadCommand",
    "ImageContentWrong",
    "NoFault",
}


def test_each_published_code_has_one_cause_and_there_are_no_others():
    codes = [code for cause in CAUSES for code in cause.codes]

    assert len(codes) == len(set(codes))
    assert set(codes) == PUBLISHED
    assert GENERAL | QUIET <= PUBLISHED


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_cause_says_only_its_own_codes(case):
    scene = Scene(read_recording(case / "bundle"))

    for cause in CAUSES:
        assert {finding.code for finding in cause.findings(scene)} <= set(cause.codes)
