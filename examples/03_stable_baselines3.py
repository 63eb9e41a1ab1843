"""PPO of Stable-Baselines3 with an intrinsic reward: one callback.

python examples/03_stable_baselines3.py            # half a minute
python examples/03_stable_baselines3.py --eta 0    # without the bonus
"""

import argparse

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import emi
from emi.adapters import IntrinsicRewardCallback

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=32_768)
parser.add_argument("--eta", type=float, default=1.0)
options = parser.parse_args()

torch.set_num_threads(1)  # the networks are small
envs = make_vec_env("MountainCarContinuous-v0", n_envs=8, seed=0)
model = PPO("MlpPolicy", envs, n_steps=512, batch_size=256, gae_lambda=0.95, seed=0)

method = emi.RND(model.observation_space, model.action_space)
bonus = IntrinsicRewardCallback(method, eta=options.eta)
model.learn(options.steps, callback=bonus)

returns = [episode["r"] for episode in model.ep_info_buffer]
reached = sum(r > 0 for r in returns)
best = f"; best return {max(returns):.1f}" if returns else ""
print(f"{reached} of the last {len(returns)} episodes reached the flag{best}")
