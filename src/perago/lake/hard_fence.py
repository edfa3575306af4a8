"""The hard fence: lakeFS itself refuses a merge whose target moved.

A Lua pre-merge action runs inside the branch's compare-and-swap, and again whenever lakeFS redoes a merge on a newer
head. It compares the head that the publication expected, which every Perago merge carries in its metadata, with the
first parent the merge would get. lakeFS reads actions from the merge's *source*, so the file must be in the repository
before a task starts from it. It names no branch: a file that travels with merges between branches would fence the
wrong one, and only Perago's merges say what they expect. Hard resets (replacement, relocation) run no action: for those
the fence stays soft.
"""

import io
import uuid

from perago.lake.control import LakeControl
from perago.lake.errors import LakeError
from perago.lake.objects import LakeObjects

ACTION_PATH = "_lakefs_actions/perago_hard_fence.yaml"

ACTION = """\
name: perago hard fence
description: Refuses a Perago publication whose target branch moved after the attempt looked at it.
on:
  pre-merge:
    branches: []
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


def install(control: LakeControl, objects: LakeObjects, repository: str, branch: str) -> str:
    """Commit the action to a branch, and give the commit that tasks must start from (or after).

    By way of a branch of its own: what goes wrong leaves the target as it was, and nobody else's changes are committed.
    """
    if next(iter(objects.uncommitted(repository, branch)), None) is not None:
        raise LakeError(f"branch {branch} of {repository} has uncommitted changes: commit or reset them first")
    content = ACTION.encode()
    head = control.head(repository, branch).id
    made_on = f"perago-fence-{uuid.uuid4().hex[:12]}"
    message, metadata = "Install Perago's hard fence", {"perago.phase": "install"}
    control.create_branch(repository, made_on, head)
    try:
        objects.store(repository, made_on, ACTION_PATH, lambda: io.BytesIO(content), len(content))
        if next(iter(objects.uncommitted(repository, made_on)), None) is None:
            return head  # it is there already
        made = control.commit(repository, made_on, message, metadata)
        return control.merge(repository, made, branch, message, metadata)
    finally:
        control.delete_branch(repository, made_on)
