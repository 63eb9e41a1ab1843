"""Keep MuJoCo's warnings from stderr and from MUJOCO_LOG.TXT in the current directory.

An unstable simulation shows in its observations, which the rollout checks; a warning about an old
model file is for its author. `mujoco.set_mju_user_warning` shows warnings again.
"""

import mujoco


def silence() -> None:
    """Ignore warnings from now on, unless the program handles them itself."""
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_ignore)


def _ignore(warning: str) -> None:
    pass
