"""The publish fence: what to do with a target branch, decided from commits alone."""

from dataclasses import dataclass

from perago.authoring.errors import PublishFenceError


@dataclass(frozen=True)
class Commit:
    """A lakeFS commit; `tree` names its whole content, so equal trees hold equal objects."""

    id: str
    parents: tuple[str, ...]
    tree: str

    @property
    def first_parent(self) -> str | None:
        return self.parents[0] if self.parents else None


@dataclass(frozen=True)
class Complete:
    """Nothing changed and the target is where the attempt began: nothing to do."""


@dataclass(frozen=True)
class Relocate:
    """Nothing changed, but an earlier attempt left a publication: move the target back to the input."""


@dataclass(frozen=True)
class Merge:
    """The target is where the attempt began: squash-merge the staged commit."""


@dataclass(frozen=True)
class Replace:
    """An earlier attempt left a publication: reset the target to the staged commit."""


@dataclass(frozen=True)
class Refuse:
    """The target is somewhere this attempt cannot explain: touch nothing."""

    reason: str


Decision = Complete | Relocate | Merge | Replace | Refuse


def decide(head: Commit, input_ref: str, changed: bool, *, by_hand: bool = False) -> Decision:
    """What an attempt that began at `input_ref` may do with a target whose head is `head`.

    Of a run by hand there are no earlier attempts: a commit beyond its input is somebody's, never an abandoned one.
    """
    if head.id == input_ref:
        return Merge() if changed else Complete()
    if by_hand:
        return Refuse(
            f"the target's head is {head.id}, not the input {input_ref}: a run by hand replaces nobody's commit, and"
            " the branch was left untouched; leave --ref out to begin at its head, or name a branch at the input with"
            " --branch"
        )
    if head.first_parent == input_ref:
        return Replace() if changed else Relocate()
    return Refuse(
        f"the target's head is {head.id} (parent {head.first_parent}), neither the input {input_ref} nor its direct"
        " child: somebody else has moved the branch, and it was left untouched; start a new workflow from its head"
    )


def assert_published_onto(input_ref: str, published: Commit) -> None:
    """After a merge: the target moved between check and merge when its parent is not the input."""
    if published.first_parent != input_ref:
        raise PublishFenceError(
            f"the merge became {published.id} on {published.first_parent}, but this attempt began at {input_ref}:"
            " another writer moved the branch at the same moment; both changes are on it now, and the attempt fails"
        )


def is_this_publication(head: Commit, input_ref: str, staged: Commit) -> bool:
    """Whether an unanswered publish has landed: the target holds just the staged tree, on the input."""
    return head.id == staged.id or (head.first_parent == input_ref and head.tree == staged.tree)
