"""SAC of Stable-Baselines3 with EMI: the bonus is computed when rows are drawn from replay.

python examples/06_off_policy.py            # a few minutes
python examples/06_off_policy.py --eta 0    # without the bonus
"""

import argparse

import gymnasium
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.monitor import Monitor

import emi
from emi.adapters import IntrinsicRewardCallback

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=20_000)
parser.add_argument("--eta", type=float, default=5.0)
options = parser.parse_args()

torch.set_num_threads(1)  # the networks are small
env = Monitor(gymnasium.make("MountainCarContinuous-v0"))
model = SAC("MlpPolicy", env, seed=0)

method = emi.bonus("emi", model.observation_space, model.action_space)
bonus = IntrinsicRewardCallback(method, eta=options.eta, learn_every=500)
model.learn(options.steps, callback=bonus, log_interval=10**6)

logged = model.logger.name_to_value
print(f"bonus {logged['intrinsic/bonus_mean']:.4f}, share {logged['intrinsic/share']:.2f}")
returns = env.get_episode_rewards()[-10:]
reached = sum(total > 0 for total in returns)
print(f"{reached} of the last {len(returns)} episodes reached the flag")
