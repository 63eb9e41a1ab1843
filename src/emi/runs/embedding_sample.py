"""A sample of states in φ-space, for pictures of the embedding."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from emi.batch import Rows, as_tensor, in_pieces
from emi.images import is_image
from emi.intrinsic.emi import EMI
from emi.intrinsic.normalize_reward import NormalizeReward
from emi.nets import Pixels
from emi.spaces import require_box
from emi.training.trainer import Trainer

VECTORS = 2_000  # approximate number of states, if they are vectors
FRAMES = 5_000  # maximum number of states, if they are images; an Atari episode has <= 4,500


def embedding_sample(trainer: Trainer) -> dict[str, Tensor]:
    """Return states of the last batch with embeddings, S, bonus and time; empty without EMI.

    They are the complete paths of the first environments, so that a path can be drawn. Vectors are
    stored as `obs`, images as the newest frames of s and s', `frame` and `frame_next` [n, C, H, W].
    """
    method = trainer.intrinsic
    if isinstance(method, NormalizeReward):
        method = method.method
    if not isinstance(method, EMI) or trainer.last_batch is None:
        return {}
    rollout, bonus = trainer.last_batch
    space = trainer.envs.single_observation_space
    chosen = np.zeros_like(rollout.valid)
    if is_image(space):
        chosen[:FRAMES, 0] = rollout.valid[:FRAMES, 0]
    else:
        paths = max(1, VECTORS // len(rollout.index))
        chosen[:, :paths] = rollout.valid[:, :paths]
    # Lazy: a path of stacked frames is too large to be in memory at once.
    obs, next_obs = (
        Rows(rollout.pool, index[chosen]) for index in (rollout.index, rollout.next_index)
    )
    action = trainer.policy.actions.to_env(rollout.action[chosen])
    env = np.broadcast_to(np.arange(chosen.shape[1]), chosen.shape)
    if is_image(space):
        newest = Pixels(require_box(space), newest_frame=True).frames
        seen = {"frame": obs, "frame_next": next_obs}
        states = {name: in_pieces(newest, "cpu", rows) for name, rows in seen.items()}
    else:
        states = {"obs": as_tensor(obs)}
    return {
        **states,
        "phi": method.embed_state(obs),
        "phi_next": method.embed_state(next_obs),
        "psi": method.embed_action(action),
        "error": method.error(obs, action),
        "bonus": torch.as_tensor(rollout.grid(bonus)[chosen]),
        "reward": torch.as_tensor(rollout.reward[chosen]),
        "clock": torch.as_tensor(rollout.clock[chosen]),
        "ended": torch.as_tensor(rollout.ended[chosen]),
        "env": torch.as_tensor(env[chosen].copy()),
    }
