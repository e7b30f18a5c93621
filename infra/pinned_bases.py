"""The images' bases by digest: a stage that retains its data is not deployed from a tag, whose content can change.

The digests are the operator's to look up and review: nothing here asks a registry.
"""

from __future__ import annotations

from collections.abc import Iterator

from aws_cdk import Annotations, Stack

from infra.stacks.functions import FUNCTION_BASE_TAG
from infra.stacks.jobs import JOB_BASE_TAG
from infra.stage import Stage

TAGS = {"function_base": FUNCTION_BASE_TAG, "job_base": JOB_BASE_TAG}
"""Setting of the stage -> the tag of AWS's image, which the recipes in infra/images use without it."""


def unpinned_bases(stage: Stage) -> Iterator[tuple[str, str]]:
    """Each setting that the stage lacks, and what to do about it."""
    for setting, tag in TAGS.items():
        if getattr(stage, setting) is None:
            yield (
                setting,
                f"stage {stage.name} builds images from the tag {tag}, whose content can change: look up its digest "
                f"(docker buildx imagetools inspect {tag}), and set {setting} in cdk.json to <image>@sha256:<digest>",
            )


def require_pinned_bases(stage: Stage, stacks: dict[str, tuple[Stack, ...]]) -> None:
    """For each unpinned base, an error on the stacks that are built on it if the stage retains its data, with which
    `cdk synth` and `cdk deploy` refuse them; a warning otherwise. `stacks`: setting -> those stacks."""
    for setting, problem in unpinned_bases(stage):
        for stack in stacks[setting]:
            if stage.retain_data:
                Annotations.of(stack).add_error(problem)
            else:
                Annotations.of(stack).add_warning_v2(f"strandline:{setting}", problem)
