"""The hard fence: lakeFS itself refuses a merge whose target moved.

A Lua pre-merge action runs inside the branch's compare-and-swap, and again whenever lakeFS redoes a merge on a newer
head. It compares the head that the publication expected, which every Perago merge carries in its metadata, with the
first parent the merge would get. lakeFS reads actions from the merge's *source*, so the file must be in the repository
before a task starts from it. Hard resets (replacement, relocation) run no action: for those the fence stays soft.
"""

import io
import json

from perago.lake.control import LakeControl
from perago.lake.objects import LakeObjects

ACTION_PATH = "_lakefs_actions/perago_hard_fence.yaml"

_ACTION = """\
name: perago hard fence
description: Refuses a Perago publication whose target branch moved after the attempt looked at it.
on:
  pre-merge:
    branches: [{branch}]
hooks:
  - id: expected_head
    type: lua
    properties:
      script: |
        local expected = action.commit.metadata["perago.expected_head"]
        local parent = action.commit.parents[1]
        if expected ~= nil and expected ~= parent then
          error("perago hard fence: expected head " .. expected .. ", but the target is at " .. tostring(parent))
        end
"""


def action_for(branch: str) -> str:
    """The action file that fences merges into a branch."""
    return _ACTION.format(branch=json.dumps(branch))


def install(control: LakeControl, objects: LakeObjects, repository: str, branch: str) -> str:
    """Commit the action to a branch, and give the commit that tasks must start from (or after)."""
    content = action_for(branch).encode()
    objects.store(repository, branch, ACTION_PATH, lambda: io.BytesIO(content), len(content))
    return control.commit(repository, branch, "Install Perago's hard fence", {"perago.phase": "install"})
