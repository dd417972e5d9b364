"""Whether a module is as its constructor left it: then what it computes follows from its parameters alone."""

from torch import nn
from torch.nn.modules import module


def is_untouched(part: nn.Module | None, kind: type[nn.Module], **parts: type[nn.Module]) -> bool:
    """Of exactly this kind, with no hook and no `forward` of its own; and so are those of its parts that are named."""
    if type(part) is not kind:
        return False
    own = part.__dict__  # looked up once: this runs in every step
    if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
        return False
    inside = own["_modules"]
    return "forward" not in own and all(is_untouched(inside.get(name), parts[name]) for name in parts)


def nobody_watches() -> bool:
    """Whether there is no hook for all modules."""
    return not (
        module._global_forward_hooks
        or module._global_forward_pre_hooks
        or module._global_backward_hooks
        or module._global_backward_pre_hooks
    )
