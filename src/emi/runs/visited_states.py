"""What visits.safetensors holds: the record of the trainer, and images in φ-space."""

from __future__ import annotations

import numpy as np

from emi.batch import Array
from emi.images import is_image
from emi.intrinsic.emi import EMI
from emi.training.trainer import Trainer


def visited_states(trainer: Trainer) -> dict[str, Array]:
    """The arrays of `Visits`, and with EMI the embedding `phi` [n, d] of sampled images.

    All images are embedded by the φ of now: embeddings of different times cannot be compared.
    Empty if nothing is recorded, or nothing yet.
    """
    if trainer.visits is None or trainer.visits.iterations == 0:
        return {}
    arrays = trainer.visits.arrays()
    space = trainer.envs.single_observation_space
    if isinstance(trainer.intrinsic, EMI) and is_image(space):
        frames = arrays["states"]
        # Of a stack the newest frame is stored, which is the one that φ reads.
        copies = (space.shape or ())[0] // frames.shape[1]
        stacks = np.tile(frames, (1, copies, *[1] * (frames.ndim - 2)))
        arrays["phi"] = trainer.intrinsic.embed_state(stacks).cpu().numpy()
    return arrays
