"""Actions that are cut off on their way to one of mjlab's environments."""

from mjlab.envs import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from mjlab.envs.types import VecEnvStepReturn
from torch import Tensor


class ClippedEnv(ManagerBasedRlEnv):
    """Within ±`limit`, as mjlab's runner does with its setting `clip_actions`; whoever acts here need not know it."""

    def __init__(self, cfg: ManagerBasedRlEnvCfg, device: str, limit: float) -> None:
        super().__init__(cfg, device)
        self.limit = limit

    def step(self, action: Tensor) -> VecEnvStepReturn:
        return super().step(action.clamp(-self.limit, self.limit))
